//! Raw samples as JSON lines.

use std::io::Write;

use rawstack_format::record::Sample;
use serde::Serialize;

use crate::error::Result;
use crate::profile::load::Shared;
use crate::profile::pending::Joined;
use crate::profile::tree::TreeFrame;
use crate::text::clean;

#[derive(Serialize)]
struct JsonSample<'s> {
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
    frames: Vec<JsonFrame>,
}

#[derive(Serialize)]
struct JsonFrame {
    kind: &'static str,
    address: Option<String>,
    path: Option<String>,
    build_id: Option<String>,
    offset: Option<String>,
}

/// Write one sample and a line end; frames leaf first, kernel before user.
pub fn write_sample(
    shared: &Shared,
    sample: &Joined,
    event: u32,
    no_kernel: bool,
    out: &mut dyn Write,
) -> Result<()> {
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
    let comm = shared
        .facts
        .threads()
        .get(sample.thread.0 as usize)
        .map_or("", |thread| thread.comm.as_str());
    let event = shared
        .events
        .get(event as usize)
        .map_or("", |event| event.name.as_str());
    let kernel = shared.tree.stack(sample.kernel).filter(|_| !no_kernel);
    let ids = kernel.chain(shared.tree.stack(sample.user));
    let frames = ids
        .filter_map(|id| shared.tree.frame(id))
        .map(|frame| json_frame(shared, frame));
    let row = JsonSample {
        time_ns,
        cpu,
        pid,
        tid,
        comm: &clean(comm),
        event: &clean(event),
        weight,
        run,
        id: id.0,
        state: state.name(),
        kernel_cut,
        user_depth,
        frames: frames.collect(),
    };
    serde_json::to_writer(&mut *out, &row)?;
    out.write_all(b"\n")?;
    Ok(())
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
    }
}
