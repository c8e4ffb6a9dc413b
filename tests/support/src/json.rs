//! What our commands print as JSON, by the contract of the command lines. A missing key fails the test.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::Run;
use crate::programs::rawstack;

/// How long a command may take to read and resolve an archive.
const DEADLINE: Duration = Duration::from_secs(180);

/// `rawstack info --json`.
#[derive(Clone, Debug, Deserialize)]
#[expect(missing_docs, reason = "the keys are the contract's own")]
pub struct Info {
    pub format_version: Value,
    pub mode: String,
    pub host: Map<String, Value>,
    pub options: Map<String, Value>,
    pub start_ns: u64,
    pub end_ns: u64,
    pub samples: u64,
    pub ids: Ids,
    pub drops: Vec<Drops>,
    pub processes: u64,
    pub threads: u64,
    pub stacks: u64,
    pub modules: Vec<Module>,
    pub jit_maps: Vec<JitMap>,
    pub bytes: u64,
    pub runs: Vec<RunInfo>,
    pub damage: Map<String, Value>,
}

/// One run of the command.
#[derive(Clone, Debug, Deserialize)]
#[expect(missing_docs, reason = "the keys are the contract's own")]
pub struct RunInfo {
    pub run: u32,
    pub start_ns: u64,
    pub end_ns: u64,
    pub work: f64,
    pub exit: i32,
}

/// Stack IDs: how many, and in what state they ended.
#[derive(Clone, Debug, Deserialize)]
#[expect(missing_docs, reason = "the keys are the contract's own")]
pub struct Ids {
    pub reserved: u64,
    pub states: BTreeMap<String, u64>,
}

/// Losses of one reason.
#[derive(Clone, Debug, Deserialize)]
#[expect(missing_docs, reason = "the keys are the contract's own")]
pub struct Drops {
    pub reason: String,
    pub count: u64,
    pub from_ns: u64,
    pub to_ns: u64,
}

/// One module of an archive.
#[derive(Clone, Debug, Deserialize)]
#[expect(missing_docs, reason = "the keys are the contract's own")]
pub struct Module {
    pub path: Option<String>,
    pub build_id: Option<String>,
    pub frames: u64,
}

/// What an archive holds of one file that tells of made code.
#[derive(Clone, Debug, Deserialize)]
#[expect(missing_docs, reason = "the keys are the contract's own")]
pub struct JitMap {
    pub pid: u32,
    pub kind: String,
    pub bytes: u64,
    pub functions: u64,
}

/// One line of `rawstack dump`.
#[derive(Clone, Debug, Deserialize)]
#[expect(missing_docs, reason = "the keys are the contract's own")]
pub struct Sample {
    pub time_ns: u64,
    pub cpu: u64,
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    pub event: String,
    pub weight: u64,
    pub run: Value,
    pub id: Value,
    pub state: String,
    pub frames: Vec<Frame>,
}

/// One frame of a sample.
#[derive(Clone, Debug, Deserialize)]
#[expect(missing_docs, reason = "the keys are the contract's own")]
pub struct Frame {
    pub kind: String,
    pub address: Option<String>,
    pub path: Option<String>,
    pub build_id: Option<String>,
    pub offset: Option<String>,
}

/// `rawstack report --json`.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[expect(missing_docs, reason = "the keys are the contract's own")]
pub struct Report {
    pub schema: Value,
    pub unit: String,
    pub total: f64,
    pub by: String,
    pub rows: Vec<Row>,
}

/// One row of a report.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[expect(missing_docs, reason = "the keys are the contract's own")]
pub struct Row {
    pub name: String,
    pub module: Option<String>,
    pub file: Option<String>,
    pub line: Option<u64>,
    #[serde(rename = "self")]
    pub self_weight: f64,
    pub total: f64,
    pub inlined: Value,
}

/// One line of `rawstack symbolize --json`.
#[derive(Clone, Debug, Deserialize)]
#[expect(missing_docs, reason = "the keys are the contract's own")]
pub struct Symbolized {
    pub build_id: Option<String>,
    pub offset: Option<String>,
    pub address: Option<String>,
    pub frames: Vec<SymbolizedFrame>,
    pub module: Option<String>,
    pub reason: Option<String>,
}

/// One function at an address, innermost first.
#[derive(Clone, Debug, Deserialize)]
#[expect(missing_docs, reason = "the keys are the contract's own")]
pub struct SymbolizedFrame {
    pub name: String,
    pub linkage_name: Option<String>,
    pub file: Option<String>,
    pub line: Option<u64>,
    pub column: Option<u64>,
    pub inlined: bool,
}

impl Ids {
    /// IDs that ended in `state`, 0 where none did.
    pub fn state(&self, state: &str) -> u64 {
        self.states.get(state).copied().unwrap_or_default()
    }

    /// Fail unless IDs were reserved, and each ended in exactly one state.
    pub fn assert_sum(&self) {
        self.assert_adds_up();
        assert!(self.reserved > 0, "no ID was reserved at all");
    }

    /// Fail unless each reserved ID, if there is any, ended in exactly one state.
    pub fn assert_adds_up(&self) {
        let sum: u64 = self.states.values().sum();
        assert_eq!(
            self.reserved, sum,
            "reserved IDs and the sum of their states differ: {self:?}"
        );
    }
}

impl Sample {
    /// The user frames, leaf first.
    pub fn user_frames(&self) -> impl Iterator<Item = &Frame> {
        self.frames.iter().filter(|frame| frame.kind == "user")
    }

    /// The kernel frames, leaf first.
    pub fn kernel_frames(&self) -> impl Iterator<Item = &Frame> {
        self.frames.iter().filter(|frame| frame.kind == "kernel")
    }
}

impl Frame {
    /// The file offset, where one is known.
    pub fn file_offset(&self) -> Option<u64> {
        self.offset.as_deref().map(parse_hex)
    }

    /// Whether it can be found again elsewhere: a module by build ID, and an offset in it.
    pub fn is_placed(&self) -> bool {
        self.path.is_some() && self.build_id.is_some() && self.offset.is_some()
    }

    /// Whether it lies in the vDSO or another page that the kernel maps, which is no file.
    pub fn is_kernel_page(&self) -> bool {
        self.path
            .as_deref()
            .is_some_and(|path| path.starts_with("[v"))
    }
}

/// `rawstack info --json` of an archive, without a look for names.
pub fn info(archive: &Path) -> Info {
    let run = rawstack_on("info", archive).args(["--json", "--raw"]);
    parse(&run.success().stdout)
}

/// The samples of an archive, by `rawstack dump`.
pub fn samples(archive: &Path) -> Vec<Sample> {
    rawstack_on("dump", archive)
        .success()
        .stdout
        .lines()
        .map(parse)
        .collect()
}

/// `rawstack report --json` of an archive, with more options.
pub fn report(archive: &Path, options: &[&str]) -> Report {
    parse(
        &rawstack_on("report", archive)
            .arg("--json")
            .args(options)
            .success()
            .stdout,
    )
}

/// `rawstack symbolize --file FILE --offsets` for file offsets, an answer for each in their order.
pub fn symbolize(file: &Path, offsets: &[u64]) -> Vec<Symbolized> {
    let input: String = offsets
        .iter()
        .map(|offset| format!("{offset:#x}\n"))
        .collect();
    let run = Run::new(rawstack())
        .args(["symbolize", "--json", "--offsets", "--file"])
        .arg(file);
    let answers: Vec<Symbolized> = run
        .input(input)
        .deadline(DEADLINE)
        .success()
        .stdout
        .lines()
        .map(parse)
        .collect();
    assert_eq!(
        answers.len(),
        offsets.len(),
        "one answer is expected for each offset"
    );
    answers
}

/// A verb of `rawstack` on an archive, with room for more options.
pub fn rawstack_on(verb: &str, archive: &Path) -> Run {
    Run::new(rawstack())
        .arg(verb)
        .arg(archive)
        .deadline(DEADLINE)
}

/// Read JSON text as `T`.
pub fn parse<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text)
        .unwrap_or_else(|err| panic!("not as the contract says: {err}\n{text}"))
}

/// Read a number in the contract's way: `0x1f`.
pub fn parse_hex(text: &str) -> u64 {
    text.strip_prefix("0x")
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .unwrap_or_else(|| panic!("{text:?} is no hexadecimal number with 0x"))
}
