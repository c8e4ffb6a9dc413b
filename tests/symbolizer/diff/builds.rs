//! Recordings of a build whose costs are known: what the tests of `diff` compare.

use rawstack_format::record::{
    FrameKind, KernelSymbol, KernelSymbols, Module, ModuleKind, Record, Run, Sample,
};

use crate::archive::Archive;

/// Functions of the workload: name and samples of a run in the mean.
const WORKLOAD: [(&str, u32); 8] = [
    ("parse", 300),
    ("hash", 200),
    ("store", 150),
    ("sort", 120),
    ("compress.constprop.0", 100),
    ("send", 80),
    ("log", 60),
    ("rare", 2),
];
/// Nanoseconds of a run.
const RUN_NS: u64 = 1_000_000_000;

/// One side of a comparison.
#[derive(Clone)]
pub(crate) struct Build {
    pub(crate) functions: Vec<(String, u32)>,
    pub(crate) runs: u32,
    pub(crate) work: f64,
    /// Chance: sides with another salt differ by noise.
    pub(crate) salt: u32,
}

impl Build {
    pub(crate) fn new(salt: u32) -> Self {
        let functions = WORKLOAD
            .iter()
            .map(|(name, samples)| ((*name).to_owned(), *samples))
            .collect();
        Self {
            functions,
            runs: 5,
            work: 1000.0,
            salt,
        }
    }

    /// The same with one function at another cost, or a new one.
    pub(crate) fn with(mut self, name: &str, samples: u32) -> Self {
        self.functions.retain(|(held, _)| held != name);
        self.functions.push((name.to_owned(), samples));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.functions.retain(|(held, _)| held != name);
        self
    }

    pub(crate) fn archive(&self) -> Archive {
        let mut archive = Archive::new();
        let symbol = |(number, (name, _)): (u64, &(String, u32))| KernelSymbol {
            offset: 0x1000 * (number + 1),
            kind: b't',
            module: String::new(),
            name: name.clone(),
        };
        let root = KernelSymbol {
            offset: 0,
            kind: b'T',
            module: String::new(),
            name: "_stext".to_owned(),
        };
        let symbols = [root]
            .into_iter()
            .chain((0..).zip(&self.functions).map(symbol))
            .collect();
        archive.record(Record::KernelSymbols(KernelSymbols {
            parts: 1,
            text_size: 0x10_0000,
            symbols,
            ..KernelSymbols::default()
        }));
        archive.process(1, "bench", "/");
        let kernel = archive.module(Module {
            kind: ModuleKind::Kernel,
            path: "[kernel]".to_owned(),
            ..Module::default()
        });
        let main = archive.frame(FrameKind::KernelCaller, kernel, 0x10);
        let leaves: Vec<_> = (1..=self.functions.len() as u64)
            .map(|number| archive.frame(FrameKind::KernelLeaf, kernel, 0x1000 * number + 5))
            .collect();
        let stacks: Vec<_> = leaves
            .iter()
            .map(|&leaf| archive.stack(&[leaf, main]))
            .collect();
        let mut rows = Vec::new();
        for run in 0..self.runs {
            let start_ns = 1_000_000_000 + u64::from(run) * RUN_NS;
            rows.push(Run {
                run,
                start_ns,
                end_ns: start_ns + RUN_NS - 1,
                work: self.work,
                exit: 0,
            });
            for ((name, mean), &stack) in self.functions.iter().zip(&stacks) {
                let count = self.count(name, *mean, run);
                for number in 0..count {
                    let time_ns = start_ns + u64::from(number) * (RUN_NS - 2) / u64::from(count);
                    archive.sample(Sample {
                        pid: 1,
                        tid: 1,
                        run,
                        time_ns,
                        kernel: stack,
                        ..Sample::default()
                    });
                }
            }
        }
        archive.record(Record::Runs(rows));
        archive
    }

    /// Samples that look like chance: within a standard deviation or so of the mean.
    #[expect(clippy::cast_possible_truncation, reason = "counts of some hundred")]
    fn count(&self, name: &str, mean: u32, run: u32) -> u32 {
        let salt = name.bytes().fold(self.salt, |salt, byte| {
            salt.wrapping_mul(31).wrapping_add(u32::from(byte))
        });
        let chance = (salt ^ (run.wrapping_mul(0x9e37_79b9))).wrapping_mul(0x85eb_ca6b) >> 16;
        let step = f64::from(chance % 1000) / 500.0 - 1.0;
        (f64::from(mean) + step * f64::from(mean).sqrt() * 1.7).round() as u32
    }
}
