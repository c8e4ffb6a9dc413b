//! Exposures of the runs, and weights as counts: what the tests take.

use super::functions::Functions;
use super::judge::Input;
use super::settings::{Basis, Settings};
use super::stats::noise::Item;
use super::stats::{Counts, size_factors};

/// Exposure of each column, and what it is, as [`compare`](super::judge::compare) takes them.
pub fn exposures(
    functions: &Functions,
    input: &Input<'_>,
    settings: &Settings,
) -> (Vec<f64>, Basis) {
    let scale = Scale::of(functions, input, settings);
    (scale.exposures.concat(), scale.basis)
}

/// Exposures, and what they mean.
pub(super) struct Scale {
    pub(super) basis: Basis,
    pub(super) exposures: [Vec<f64>; 2],
    /// How much longer the new side is as a whole, where that is divided out.
    pub(super) factor: Option<f64>,
}

impl Scale {
    pub(super) fn of(functions: &Functions, input: &Input<'_>, settings: &Settings) -> Self {
        let usual = if input.sides.has_work() {
            Basis::Work
        } else {
            Basis::Ratio
        };
        let basis = settings.basis.unwrap_or(usual);
        let parts = input.columns.len() as f64
            / input.sides.runs.iter().map(Vec::len).sum::<usize>().max(1) as f64;
        let exposures: Vec<f64> = match basis {
            Basis::Work => input.columns.works.concat(),
            Basis::Run => vec![parts.recip(); functions.width],
            Basis::Ratio => {
                let rows: Vec<&[f64]> = (0..functions.keys.len())
                    .map(|function| functions.row(function, false))
                    .collect();
                size_factors(&rows, functions.width)
                    .into_iter()
                    .map(|factor| factor / parts)
                    .collect()
            }
            Basis::Share => functions.all.clone(),
        };
        let positive = |exposure: &f64| {
            if *exposure > 0.0 && exposure.is_finite() {
                *exposure
            } else {
                1.0
            }
        };
        let exposures: Vec<f64> = exposures.iter().map(positive).collect();
        let (base, new) = exposures.split_at(functions.first_new.min(exposures.len()));
        let mean = |side: &[f64]| side.iter().sum::<f64>() / side.len().max(1) as f64;
        let factor = (basis == Basis::Ratio).then(|| mean(new) / mean(base));
        Self {
            basis,
            exposures: [base.to_vec(), new.to_vec()],
            factor,
        }
    }
}

/// Weights as counts: each function in the mean weight of its samples.
pub(super) struct Numbers {
    rows: Vec<Vec<f64>>,
    units: Vec<f64>,
    all: Vec<f64>,
    all_unit: f64,
}

impl Numbers {
    pub(super) fn of(functions: &Functions, inclusive: bool) -> Self {
        let squares = if inclusive {
            &functions.total_squares
        } else {
            &functions.own_squares
        };
        let unit = |row: &[f64], squares: f64| {
            let sum: f64 = row.iter().sum();
            if sum > 0.0 && squares > 0.0 {
                squares / sum
            } else {
                1.0
            }
        };
        let row = |function: usize| functions.row(function, inclusive);
        let units = (0..functions.keys.len())
            .zip(squares)
            .map(|(function, &squares)| unit(row(function), squares));
        let units: Vec<f64> = units.collect();
        let counts = |row: &[f64], unit: f64| row.iter().map(|weight| weight / unit).collect();
        let all_unit = unit(&functions.all, functions.all_squares);
        Self {
            rows: units
                .iter()
                .enumerate()
                .map(|(function, &unit)| counts(row(function), unit))
                .collect(),
            units,
            all: counts(&functions.all, all_unit),
            all_unit,
        }
    }

    pub(super) fn counts<'c>(
        &'c self,
        functions: &Functions,
        scale: &'c Scale,
        settings: &Settings,
    ) -> Counts<'c> {
        let item = |row: &'c [f64]| {
            let (base, new) = row.split_at(functions.first_new.min(row.len()));
            Item {
                counts: [base, new],
            }
        };
        let margins = functions.keys.iter().map(|key| settings.margin(&key.name));
        Counts {
            items: self.rows.iter().map(|row| item(row)).collect(),
            units: self.units.clone(),
            margins: margins.collect(),
            total: item(&self.all),
            total_unit: self.all_unit,
            exposures: [&scale.exposures[0], &scale.exposures[1]],
        }
    }
}

/// Mean of the rates of a row, by side.
pub(super) fn mean_rates(row: &[f64], exposures: [&[f64]; 2]) -> [f64; 2] {
    let (base, new) = row.split_at(exposures[0].len().min(row.len()));
    let mean = |side: &[f64], exposures: &[f64]| {
        let rates = side
            .iter()
            .zip(exposures)
            .map(|(weight, exposure)| weight / exposure);
        rates.sum::<f64>() / side.len().max(1) as f64
    };
    [mean(base, exposures[0]), mean(new, exposures[1])]
}
