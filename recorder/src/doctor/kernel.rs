//! The kernel itself: what it is, and whether it takes the recorder's programs.

use std::fs::{self, File};

use rawstack_bpf::can_defer;
use rustix::system::uname;

use super::{Check, Verdict};

const BTF: &str = "/sys/kernel/btf/vmlinux";
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

pub(super) fn checks() -> Vec<Check> {
    let release = uname().release().to_string_lossy().into_owned();
    let deferral = can_defer();
    let version = match &deferral {
        Err(error @ rawstack_bpf::Error::TooOld(_)) => Verdict::Missing(error.to_string()),
        _ => Verdict::Works(release),
    };
    let deferred = match deferral {
        Ok(Ok(())) => {
            Verdict::Works("user stacks are taken on the return, page faults allowed".to_owned())
        }
        Ok(Err(reason)) => Verdict::Missing(format!("{reason}: user stacks are taken at the tick")),
        Err(error) => Verdict::Missing(error.to_string()),
    };
    vec![
        Check::needed("version", version),
        Check::needed("type information", type_information()),
        Check::needed(
            "lockdown",
            lockdown(&fs::read_to_string(LOCKDOWN).unwrap_or_default()),
        ),
        Check::wanted("deferred capture", deferred),
    ]
}

fn type_information() -> Verdict {
    let why =
        |error| format!("{BTF}: {error}; the kernel must be built with CONFIG_DEBUG_INFO_BTF=y");
    Verdict::of(File::open(BTF).map(|_| ()).map_err(why), BTF)
}

/// `none [integrity] confidentiality`; nothing where the kernel has no such thing.
fn lockdown(text: &str) -> Verdict {
    let level = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    match level.map(|(level, _)| level) {
        Some("confidentiality") => Verdict::Missing(
            "no program may read the kernel's memory; boot with lockdown=integrity or without lockdown".to_owned(),
        ),
        Some(level) => Verdict::Works(level.to_owned()),
        None => Verdict::Works("none".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only the level that hides memory stands in the way.
    #[test]
    fn levels() {
        assert_eq!(lockdown(""), Verdict::Works("none".to_owned()));
        let integrity = lockdown("none [integrity] confidentiality\n");
        assert_eq!(integrity, Verdict::Works("integrity".to_owned()));
        let missing = lockdown("none integrity [confidentiality]\n");
        assert!(matches!(missing, Verdict::Missing(_)));
    }
}
