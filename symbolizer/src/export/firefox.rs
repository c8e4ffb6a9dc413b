//! Firefox Profiler's processed profile, version 63, which newer readers upgrade: each sample of each thread, with its
//! time. To be compressed with gzip by who writes the file.
//!
//! The format has columns by thread, so samples are held until the end: packed, in some eight bytes each.

use std::collections::BTreeMap;
use std::io::Write;

use foldhash::HashMap;
use serde::Serialize;
use serde_json::{Value, json};

use super::exporter::{ExportSample, Exporter, Source};
use super::packed::PackedSamples;
use super::prefix::PrefixTree;
use super::speedscope::{separate, write_open};
use crate::error::Result;
use crate::symbolized::{Located, ModuleSymbols};
use crate::text::StringId;

/// Version of the format.
const VERSION: u32 = 63;
/// Version of what it was made from, which nothing of ours was.
const RAW_VERSION: u32 = 30;
/// Categories, by number.
const USER: u32 = 1;
const KERNEL: u32 = 2;

/// A thread of one archive, and the event that was sampled.
type ThreadKey = (u32, u32, u32, u32);

/// A frame of the frame table.
#[derive(Clone, Copy, Debug)]
struct Frame {
    located: Located,
    func: u32,
    /// How many functions it is inlined into.
    depth: u32,
}

/// Collects samples by thread.
#[derive(Debug, Default)]
pub struct Firefox {
    stacks: PrefixTree,
    frames: Vec<Frame>,
    frame_index: HashMap<(Option<u32>, u32), u32>,
    /// Functions: name and module.
    funcs: Vec<(StringId, StringId, Option<StringId>)>,
    func_index: HashMap<(StringId, StringId), u32>,
    threads: BTreeMap<ThreadKey, Thread>,
}

#[derive(Debug, Default)]
struct Thread {
    comm: String,
    process: String,
    samples: PackedSamples,
}

impl Firefox {
    fn func(&mut self, source: &Source<'_>, named: u32) -> u32 {
        let frame = source.profile.frame(named);
        let key = (frame.name, frame.module);
        let next = u32::try_from(self.funcs.len()).unwrap_or(u32::MAX);
        let id = *self.func_index.entry(key).or_insert(next);
        if id == next {
            self.funcs
                .push((frame.name, frame.module, frame.place.file.get()));
        }
        id
    }

    fn frame(&mut self, source: &Source<'_>, located: Located, depth: usize) -> u32 {
        let key = (located.place, located.named);
        if let Some(&known) = self.frame_index.get(&key) {
            return known;
        }
        let id = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
        self.frame_index.insert(key, id);
        let func = self.func(source, located.named);
        let depth = u32::try_from(depth).unwrap_or(u32::MAX);
        self.frames.push(Frame {
            located,
            func,
            depth,
        });
        id
    }

    fn write_tables(&self, source: &Source<'_>, out: &mut dyn Write) -> Result<()> {
        let mut strings = Strings::default();
        let modules = &source.profile.modules;
        let resources: HashMap<&str, usize> = (modules.iter().enumerate())
            .map(|(index, module)| (module.path.as_str(), index))
            .collect();
        out.write_all(b"\"shared\":{\"stackTable\":{")?;
        let nodes = || self.stacks.nodes();
        column("frame", nodes().map(|(_, frame)| Some(frame)), out)?;
        column("prefix", nodes().map(|(parent, _)| parent), out)?;
        write!(out, "\"length\":{}}},", nodes().count())?;
        self.write_frames(source, out)?;
        self.write_funcs(source, &resources, &mut strings, out)?;
        let names: Vec<u32> = modules
            .iter()
            .map(|module| strings.of(base_name(&module.path)))
            .collect();
        let length = modules.len();
        let tables = json!({
            "resourceTable": {
                "lib": (0..length).collect::<Vec<_>>(), "name": names, "host": vec![Value::Null; length],
                "type": vec![1; length], "length": length,
            },
            "nativeSymbols": {
                "libIndex": [], "address": [], "name": [], "functionSize": [], "length": 0,
            },
            "stringArray": strings.list,
        });
        let text = serde_json::to_vec(&tables)?;
        out.write_all(text.strip_prefix(b"{").unwrap_or(&text))?;
        Ok(())
    }

    fn write_frames(&self, source: &Source<'_>, out: &mut dyn Write) -> Result<()> {
        let profile = source.profile;
        let frames = || self.frames.iter();
        let named = |frame: &Frame| profile.frame(frame.located.named);
        let address = |frame: &Frame| {
            let place = profile.places().get(frame.located.place? as usize)?;
            let module = profile.modules.get(place.module? as usize)?;
            i64::try_from(module.vaddr(place.offset)).ok()
        };
        let category = |frame: &Frame| if named(frame).kernel { KERNEL } else { USER };
        let known = |number: u32| (number != 0).then_some(number);
        let nothing = || frames().map(|_| None::<u32>);
        out.write_all(b"\"frameTable\":{")?;
        column(
            "address",
            frames().map(|frame| Some(address(frame).unwrap_or(-1))),
            out,
        )?;
        column("inlineDepth", frames().map(|frame| Some(frame.depth)), out)?;
        column("category", frames().map(|frame| Some(category(frame))), out)?;
        column("subcategory", frames().map(|_| Some(0)), out)?;
        column("func", frames().map(|frame| Some(frame.func)), out)?;
        column("nativeSymbol", nothing(), out)?;
        column("innerWindowID", nothing(), out)?;
        column(
            "line",
            frames().map(|frame| known(named(frame).place.line)),
            out,
        )?;
        column(
            "column",
            frames().map(|frame| known(named(frame).place.column)),
            out,
        )?;
        write!(out, "\"length\":{}}},", self.frames.len())?;
        Ok(())
    }

    fn write_funcs(
        &self,
        source: &Source<'_>,
        resources: &HashMap<&str, usize>,
        strings: &mut Strings,
        out: &mut dyn Write,
    ) -> Result<()> {
        let text = |id: StringId| source.profile.text(id);
        let (mut files, mut file_index) = (Vec::new(), HashMap::default());
        let sources: Vec<Option<usize>> = (self.funcs.iter())
            .map(|(_, _, file)| {
                file.map(|file| {
                    *file_index.entry(file).or_insert_with(|| {
                        files.push(strings.of(text(file)));
                        files.len() - 1
                    })
                })
            })
            .collect();
        let funcs = || self.funcs.iter();
        let resource = |module: StringId| {
            let known = resources.get(text(module)).copied();
            known
                .and_then(|known| i64::try_from(known).ok())
                .unwrap_or(-1)
        };
        let length = self.funcs.len();
        let nothing = || funcs().map(|_| None::<u32>);
        out.write_all(b"\"funcTable\":{")?;
        column(
            "name",
            funcs().map(|func| Some(strings.of(text(func.0)))),
            out,
        )?;
        column("isJS", funcs().map(|_| Some(false)), out)?;
        column("relevantForJS", funcs().map(|_| Some(false)), out)?;
        column("resource", funcs().map(|func| Some(resource(func.1))), out)?;
        column("source", sources.into_iter(), out)?;
        column("lineNumber", nothing(), out)?;
        column("columnNumber", nothing(), out)?;
        write!(out, "\"length\":{length}}},\"sources\":")?;
        let length = files.len();
        let nothing = vec![Value::Null; length];
        let table = json!({
            "id": nothing, "filename": files, "startLine": vec![1; length], "startColumn": vec![1; length],
            "sourceMapURL": nothing, "length": length,
        });
        serde_json::to_writer(&mut *out, &table)?;
        out.write_all(b",")?;
        Ok(())
    }
}

/// Strings of the profile, each once.
#[derive(Default)]
struct Strings {
    list: Vec<String>,
    index: HashMap<String, u32>,
}

impl Strings {
    fn of(&mut self, text: &str) -> u32 {
        if let Some(&known) = self.index.get(text) {
            return known;
        }
        let id = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.list.push(text.to_owned());
        self.index.insert(text.to_owned(), id);
        id
    }
}

/// A column and a comma.
fn column<T: Serialize>(
    name: &str,
    values: impl Iterator<Item = Option<T>>,
    out: &mut dyn Write,
) -> Result<()> {
    write!(out, "\"{name}\":[")?;
    for (number, value) in values.enumerate() {
        separate(number, out)?;
        serde_json::to_writer(&mut *out, &value)?;
    }
    out.write_all(b"],")?;
    Ok(())
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Breakpad's form of a build ID: its first 16 bytes as a GUID, whose first three numbers are little-endian, and an age.
fn breakpad_id(build_id: &str) -> String {
    let byte = |index: usize| build_id.get(2 * index..2 * index + 2).unwrap_or("00");
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let guid: String = order.into_iter().map(byte).collect();
    guid.to_uppercase() + "0"
}

fn lib(module: &ModuleSymbols) -> Value {
    let name = base_name(&module.path);
    let id = module.build_id.as_deref().unwrap_or_default();
    json!({
        "arch": "", "name": name, "path": module.path, "debugName": name, "debugPath": module.path,
        "breakpadId": breakpad_id(id), "codeId": module.build_id,
    })
}

fn meta(source: &Source<'_>, interval_ms: f64) -> Value {
    let category =
        |name: &str, color: &str| json!({"name": name, "color": color, "subcategories": ["Other"]});
    let (start, _) = source.times();
    json!({
        "interval": interval_ms,
        "startTime": start as f64 / 1e6,
        "processType": 0,
        "product": "rawstack",
        "stackwalk": 1,
        "version": RAW_VERSION,
        "preprocessedProfileVersion": VERSION,
        "categories": [category("Other", "grey"), category("User", "yellow"), category("Kernel", "orange")],
        "markerSchema": [],
        "symbolicated": true,
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"},
        "importedFrom": concat!("rawstack ", env!("CARGO_PKG_VERSION")),
        "oscpu": source.host(),
    })
}

/// What a unit is called, and what a weight is divided by.
fn weight_type(unit: &str) -> (&'static str, bool) {
    match unit {
        "ns" => ("tracing-ms", true),
        "bytes" => ("bytes", false),
        _ => ("samples", false),
    }
}

/// Nanoseconds as milliseconds, with all their digits.
fn write_ms(ns: u64, out: &mut dyn Write) -> Result<()> {
    write!(out, "{}.{:06}", ns / 1_000_000, ns % 1_000_000)?;
    Ok(())
}

fn write_thread(
    source: &Source<'_>,
    key: &ThreadKey,
    thread: &Thread,
    out: &mut dyn Write,
) -> Result<()> {
    let &(archive, pid, tid, event) = key;
    let facts = source.profile.events.get(event as usize);
    let (event_name, unit) = facts.map_or(("", "samples"), |facts| (&facts.name, &facts.unit));
    let (weight_type, in_ms) = weight_type(unit);
    // Samples of another event are a thread of their own, as their weights do not add up with the first one's.
    let name = if event == 0 {
        thread.comm.clone()
    } else {
        format!("{} ({event_name})", thread.comm)
    };
    let again = if archive == 0 {
        String::new()
    } else {
        format!(".{archive}")
    };
    let head = json!({
        "processType": "default", "processStartupTime": 0, "processShutdownTime": null, "registerTime": 0,
        "unregisterTime": null, "pausedRanges": [], "name": name, "isMainThread": pid == tid,
        "processName": thread.process, "pid": format!("{pid}{again}"), "tid": tid,
        "markers": {
            "data": [], "name": [], "startTime": [], "endTime": [], "phase": [], "category": [], "length": 0,
        },
    });
    write_open(&head, out)?;
    write!(out, ",\"samples\":{{\"weightType\":\"{weight_type}\",")?;
    let samples = thread.samples.in_order();
    column("stack", samples.iter().map(|sample| sample.stack), out)?;
    out.write_all(b"\"time\":[")?;
    for (number, sample) in samples.iter().enumerate() {
        separate(number, out)?;
        write_ms(sample.time_ns, out)?;
    }
    out.write_all(b"],\"weight\":[")?;
    for (number, sample) in samples.iter().enumerate() {
        separate(number, out)?;
        match in_ms {
            true => write_ms(sample.weight, out)?,
            false => write!(out, "{}", sample.weight)?,
        }
    }
    write!(out, "],\"length\":{}}}}}", samples.len())?;
    Ok(())
}

impl Exporter for Firefox {
    fn sample(
        &mut self,
        source: &Source<'_>,
        sample: &ExportSample<'_>,
        _: &mut dyn Write,
    ) -> Result<()> {
        let mut frames = Vec::with_capacity(sample.stack.len());
        for chain in sample.chains() {
            let outermost = chain.len() - 1;
            for (index, &located) in chain.iter().enumerate() {
                frames.push(self.frame(source, located, outermost - index));
            }
        }
        let stack = self.stacks.add(frames.into_iter().rev());
        let row = sample.row.copied().unwrap_or_default();
        let (archive, time_ns) = source.since_start(sample, row.time_ns);
        let key = (archive, row.pid, row.tid, sample.event);
        let thread = self.threads.entry(key).or_default();
        if let Some(facts) = source.thread(sample)
            && facts.comm != thread.comm
        {
            thread.comm.clone_from(&facts.comm);
            thread.process.clone_from(&facts.process_comm);
        }
        thread.samples.push(stack, time_ns, sample.weight);
        Ok(())
    }

    fn finish(&mut self, source: &Source<'_>, out: &mut dyn Write) -> Result<()> {
        let libs: Vec<Value> = source.profile.modules.iter().map(lib).collect();
        let first = self
            .threads
            .values()
            .find_map(|thread| thread.samples.first_weight());
        let interval = first.map_or(1.0, |ns| ns as f64 / 1e6);
        let head =
            json!({"meta": meta(source, interval), "libs": libs, "pages": [], "counters": []});
        write_open(&head, out)?;
        out.write_all(b",")?;
        self.write_tables(source, out)?;
        out.write_all(b",\"threads\":[")?;
        for (number, (key, thread)) in self.threads.iter().enumerate() {
            separate(number, out)?;
            write_thread(source, key, thread, out)?;
        }
        out.write_all(b"]}\n")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check a build ID in Breakpad's form, and one that is too short for it.
    #[test]
    fn breakpad_ids() {
        assert_eq!(
            breakpad_id("0123456789abcdef00112233445566778899aabb"),
            "67452301AB89EFCD00112233445566770"
        );
        assert_eq!(breakpad_id("dead").len(), 33);
    }
}
