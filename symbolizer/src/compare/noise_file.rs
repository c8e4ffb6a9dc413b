//! The noise of one machine and workload, measured from runs of one build and kept in a file.

use serde::{Deserialize, Serialize};

use super::functions::Functions;
use super::judge::Input;
use super::stats::Noise;
use super::stats::noise::{Item, Moments, freedom};
use super::stats::{Counts, Judged, Strictness};
use crate::profile::Summary;
use crate::text::clean;

/// Version of the layout.
const SCHEMA: &str = "rawstack.noise.v1";
/// Runs that are needed to say anything.
const LEAST_RUNS: usize = 3;

/// What is wrong with a noise file, or with what one is to be made of.
#[derive(Debug, thiserror::Error)]
pub enum NoiseError {
    /// It is no such file.
    #[error("it is no noise file of this version ({SCHEMA}); make one with `rawstack calibrate`")]
    Layout,
    /// Too few runs.
    #[error("there are {0} runs, and {LEAST_RUNS} are needed; record with -r 10")]
    Runs(usize),
    /// No function has samples enough.
    #[error("no function has enough samples; record longer or at a higher frequency")]
    Samples,
}

/// The file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoiseFile {
    /// Version of the layout.
    pub schema: String,
    /// Event.
    pub event: String,
    /// Unit of its weights.
    pub unit: String,
    /// Kernel of the host.
    pub kernel: String,
    /// Processor of the host.
    pub cpu: String,
    /// What costs were per.
    pub basis: String,
    /// Runs that it was measured from.
    pub runs: usize,
    /// Functions that it was measured from.
    pub functions: usize,
    /// Factor on the variance by chance.
    pub psi: f64,
    /// Square of the coefficient of variation from run to run.
    pub phi: f64,
    /// Degrees of freedom.
    pub freedom: f64,
    /// Coefficient of variation of the total from run to run, chance included.
    pub total_variation: f64,
}

impl NoiseFile {
    /// Read one.
    pub fn read(text: &str) -> Result<Self, NoiseError> {
        let file: Self = serde_json::from_str(text).map_err(|_| NoiseError::Layout)?;
        let is_number = |value: f64, least: f64| value.is_finite() && value >= least;
        let is_good =
            is_number(file.psi, 1.0) && is_number(file.phi, 0.0) && is_number(file.freedom, 1.0);
        if file.schema == SCHEMA && is_good {
            Ok(file)
        } else {
            Err(NoiseError::Layout)
        }
    }

    /// Measure it: all runs are of one build, and stand on the base side.
    pub fn measure(
        functions: &Functions,
        input: &Input<'_>,
        exposures: &[f64],
        basis: &str,
    ) -> Result<Self, NoiseError> {
        if exposures.len() < LEAST_RUNS {
            return Err(NoiseError::Runs(exposures.len()));
        }
        let unit = |squares: f64, row: &[f64]| {
            let sum: f64 = row.iter().sum();
            if sum > 0.0 && squares > 0.0 {
                squares / sum
            } else {
                1.0
            }
        };
        let counts =
            |row: &[f64], unit: f64| row.iter().map(|weight| weight / unit).collect::<Vec<f64>>();
        let rows =
            (0..functions.keys.len())
                .zip(&functions.own_squares)
                .map(|(function, &squares)| {
                    let row = functions.row(function, false);
                    counts(row, unit(squares, row))
                });
        let rows: Vec<Vec<f64>> = rows.collect();
        let all = counts(&functions.all, unit(functions.all_squares, &functions.all));
        let strictness = Strictness::default();
        let numbers = Counts {
            items: rows.iter().map(|row| Item { counts: [row, &[]] }).collect(),
            units: vec![1.0; rows.len()],
            margins: vec![strictness.margin; rows.len()],
            total: Item {
                counts: [&all, &[]],
            },
            total_unit: 1.0,
            exposures: [exposures, &[]],
        };
        let noise = Judged::of(&numbers, &strictness, None).noise;
        if noise.functions == 0 {
            return Err(NoiseError::Samples);
        }
        let total = Moments::of(&numbers.total, numbers.exposures);
        let first = input.archives.first();
        Ok(Self {
            schema: SCHEMA.to_owned(),
            event: input.event.to_owned(),
            unit: input.unit.to_owned(),
            kernel: host(first, "kernel_release"),
            cpu: host(first, "cpu_model"),
            basis: basis.to_owned(),
            runs: exposures.len(),
            functions: noise.functions,
            psi: noise.psi,
            phi: noise.phi,
            freedom: freedom(numbers.exposures),
            total_variation: total.variance.sqrt() / total.pooled.max(f64::MIN_POSITIVE),
        })
    }

    /// As the tests take it.
    pub fn noise(&self) -> Noise {
        Noise {
            psi: self.psi,
            phi: self.phi,
            freedom: self.freedom,
            functions: self.functions,
        }
    }

    /// What of a comparison it was not measured for.
    pub(super) fn misfits(&self, input: &Input<'_>) -> Vec<String> {
        let first = input.archives.first();
        let facts = [
            ("event", self.event.clone(), input.event.to_owned()),
            ("kernel", self.kernel.clone(), host(first, "kernel_release")),
            ("CPU", self.cpu.clone(), host(first, "cpu_model")),
        ];
        let differ = facts.into_iter().filter(|(_, held, now)| held != now);
        differ
            .map(|(fact, held, now)| {
                format!("the noise was measured for another {fact}: {held}, and this is {now}")
            })
            .collect()
    }
}

fn host(archive: Option<&Summary>, wanted: &str) -> String {
    let recording = archive.and_then(|archive| archive.recording.as_ref());
    let facts = recording.into_iter().flat_map(|recording| &recording.host);
    let mut found = facts.filter(|(name, _)| name == wanted);
    found
        .next()
        .map_or_else(String::new, |(_, value)| clean(value).into_owned())
}
