//! IDs that are made of what they stand for, so that the same thing has the same ID in each recording.

use rawstack_format::record::Recording;
use sha2::{Digest, Sha256};

use crate::profile::Summary;
use crate::symbolized::ModuleSymbols;

/// The first half of a SHA-256.
pub(super) type Id = [u8; 16];

/// Takes in what an ID is made of. Each part says how long it is, so that no two lists of parts are alike.
pub(super) struct IdBuilder(Sha256);

impl IdBuilder {
    /// The ID of a thing of this kind.
    pub(super) fn new(kind: &str) -> Self {
        Self(Sha256::new()).bytes(kind.as_bytes())
    }

    /// Take in bytes.
    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    /// Take in a text.
    pub(super) fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    /// Take in a number.
    pub(super) fn number(self, number: u64) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    /// The ID.
    pub(super) fn id(self) -> Id {
        let mut id = Id::default();
        id.iter_mut()
            .zip(self.0.finalize())
            .for_each(|(byte, of_digest)| *byte = of_digest);
        id
    }
}

/// A recording: what its first row says; where that is lost, its times and counts.
pub(super) fn of_recording(archive: &Summary) -> Id {
    let id = IdBuilder::new("recording");
    let Some(recording) = &archive.recording else {
        let counts = [archive.start_ns(), archive.end_ns(), archive.samples];
        return counts.into_iter().fold(id, IdBuilder::number).id();
    };
    let Recording {
        epoch: _,
        mode,
        mode_reason,
        start_ns,
        start_wall_ns,
        writer,
        events,
        options,
        host,
        labels,
    } = recording;
    let id = [*mode as u64, *start_ns, *start_wall_ns]
        .into_iter()
        .fold(id, IdBuilder::number);
    let id = id
        .text(mode_reason)
        .text(writer)
        .number(events.len() as u64);
    let id = events.iter().fold(id, |id, event| {
        let id = id.text(&event.name).text(&event.unit);
        id.number(event.period).number(event.frequency)
    });
    let pairs = |id: IdBuilder, pairs: &[(String, String)]| {
        let id = id.number(pairs.len() as u64);
        pairs
            .iter()
            .fold(id, |id, (key, value)| id.text(key).text(value))
    };
    pairs(pairs(pairs(id, options), host), labels).id()
}

/// A module: its build ID, else its hash; one without either is the recording's own.
pub(super) fn of_module(module: &ModuleSymbols, recording: &Id) -> Id {
    let id = IdBuilder::new("module");
    match (&module.build_id, &module.hash) {
        (Some(build_id), _) => id.text("build-id").text(build_id).id(),
        (None, Some(hash)) => id.text("hash").text(hash).id(),
        (None, None) => id.bytes(recording).text(&module.path).id(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that parts keep their bounds, and that a recording's ID is that of what it says and of nothing else.
    #[test]
    fn ids_of_content() {
        let id = |parts: &[&str]| {
            let id = IdBuilder::new("x");
            parts.iter().fold(id, |id, part| id.text(part)).id()
        };
        assert_ne!(id(&["ab", "c"]), id(&["a", "bc"]));
        let recording = |label: &str, path: &str| {
            let mut archive = Summary::default();
            archive.recording = Some(Recording {
                labels: vec![("service".to_owned(), label.to_owned())],
                ..Recording::default()
            });
            path.clone_into(&mut archive.path);
            of_recording(&archive)
        };
        assert_eq!(recording("web", "a"), recording("web", "b"));
        assert_ne!(recording("web", "a"), recording("db", "a"));
    }
}
