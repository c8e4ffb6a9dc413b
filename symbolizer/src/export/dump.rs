//! Raw samples as JSON lines.

use std::io::Write;

use rawstack_format::record::Sample;
use serde::Serialize;

use crate::error::Result;
use crate::profile::load::Shared;
use crate::profile::pending::Joined;
use crate::profile::tree::{FrameId, TreeFrame};
use crate::text::clean;

/// Version of the layout; stands in each line.
const SCHEMA: &str = "rawstack.dump.v1";

#[derive(Serialize)]
struct JsonSample<'s> {
    schema: &'static str,
    time_ns: u64,
    cpu: u32,
    pid: u32,
    tid: u32,
    comm: &'s str,
    event: &'s str,
    weight: u64,
    run: u32,
    id: u64,
    state: &'static str,
    kernel_cut: bool,
    user_depth: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    unwound: Option<&'static str>,
}

#[derive(Serialize)]
struct JsonFrame {
    kind: &'static str,
    address: Option<String>,
    path: Option<String>,
    build_id: Option<String>,
    offset: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    guessed: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde asks.
fn is_false(value: &bool) -> bool {
    !value
}

/// Writes samples of one archive. A frame's JSON is made when it is first met.
#[derive(Debug, Default)]
pub struct JsonDump {
    frames: Vec<Option<Box<str>>>,
    no_kernel: bool,
}

impl JsonDump {
    /// A dump, without kernel frames if `no_kernel`.
    pub fn new(no_kernel: bool) -> Self {
        Self {
            no_kernel,
            ..Self::default()
        }
    }

    /// Write one sample and a line end; frames leaf first, kernel before user.
    pub fn write(
        &mut self,
        shared: &Shared,
        sample: &Joined,
        event: u32,
        out: &mut dyn Write,
    ) -> Result<()> {
        let row = json_sample(shared, sample, event)?;
        // The frames are the last key of the same object.
        out.write_all(row.strip_suffix(b"}").unwrap_or(&row))?;
        out.write_all(b",\"frames\":[")?;
        let tree = &shared.tree;
        let kernel = tree.stack(sample.kernel).filter(|_| !self.no_kernel);
        let is_frame = |id: &FrameId| tree.frame(*id).is_none_or(|frame| frame.mark.is_none());
        let frames = kernel.chain(tree.stack(sample.user)).filter(is_frame);
        for (depth, id) in frames.enumerate() {
            if depth > 0 {
                out.write_all(b",")?;
            }
            if self.frames.len() <= id.index() {
                self.frames.resize(tree.frames().len(), None);
            }
            if let Some(slot) = self.frames.get_mut(id.index())
                && let Some(frame) = tree.frame(id)
            {
                let text = match slot {
                    Some(text) => text,
                    None => slot.insert(serde_json::to_string(&json_frame(shared, frame))?.into()),
                };
                out.write_all(text.as_bytes())?;
            }
        }
        out.write_all(b"]}\n")?;
        Ok(())
    }
}

/// A sample without its frames.
fn json_sample(shared: &Shared, sample: &Joined, event: u32) -> Result<Vec<u8>> {
    let Sample {
        time_ns,
        cpu,
        pid,
        tid,
        weight,
        run,
        id,
        state,
        kernel_cut,
        user_depth,
        ..
    } = sample.row;
    let thread = shared.facts.threads().get(sample.thread.0 as usize);
    let event = shared.events.get(event as usize);
    let row = JsonSample {
        schema: SCHEMA,
        time_ns,
        cpu,
        pid,
        tid,
        comm: &clean(thread.map_or("", |thread| thread.comm.as_str())),
        event: &clean(event.map_or("", |event| event.name.as_str())),
        weight,
        run,
        id: id.0,
        state: state.name(),
        kernel_cut,
        user_depth,
        unwound: sample.end.map(|end| end.name()),
    };
    Ok(serde_json::to_vec(&row)?)
}

fn json_frame(shared: &Shared, frame: &TreeFrame) -> JsonFrame {
    let module = shared
        .tree
        .modules()
        .get(frame.module.index())
        .map(|(_, module)| module);
    let hex = |number: u64| format!("{number:#x}");
    JsonFrame {
        kind: if frame.kernel { "kernel" } else { "user" },
        address: (!frame.kernel && !frame.lost).then(|| hex(frame.address.0)),
        path: module.map(|module| clean(&module.path).into_owned()),
        build_id: module
            .and_then(|module| module.build_id.as_ref())
            .map(ToString::to_string),
        offset: module.map(|_| hex(frame.offset.0)),
        guessed: frame.guessed,
    }
}
