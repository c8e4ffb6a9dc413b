//! Counts of both sides → what changed, how sure that is, and a verdict.

use super::common::common_callers;
use super::comparison::{
    ComparedRow, Comparison, Detectable, RenamedRow, RowVerdict, SideSummary, Verdict,
};
use super::functions::Functions;
use super::key::CANON;
use super::noise_file::NoiseFile;
use super::renames::{Rename, renames};
use super::scale::{Numbers, Scale, mean_rates};
use super::settings::{Basis, Settings};
use super::shift::{Yardstick, moved};
use super::sides::{Columns, Sides, loss};
use super::stats::noise::Moments;
use super::stats::{Counts, Judged, Tested};
use crate::profile::Summary;
use crate::text::clean;

/// Nanoseconds of a day.
const DAY_NS: u64 = 86_400_000_000_000;
/// Name of the total's row.
pub(super) const TOTAL: &str = "[total]";

/// What is compared, from the archives.
#[derive(Debug)]
pub struct Input<'i> {
    /// Archives of both sides.
    pub archives: &'i [Summary],
    /// Runs.
    pub sides: &'i Sides,
    /// Columns of the counts.
    pub columns: &'i Columns,
    /// Event.
    pub event: &'i str,
    /// Its unit.
    pub unit: &'i str,
    /// What is known of noise from elsewhere.
    pub noise: Option<&'i NoiseFile>,
    /// What else is to be told.
    pub notes: Vec<String>,
}

/// Compare. With `accept_renames` functions that were probably renamed become one in `functions`.
pub fn compare(functions: &mut Functions, input: Input<'_>, settings: &Settings) -> Comparison {
    // Lines come and go with every change: only functions are sought under another name.
    let found = match settings.apart.by_line {
        true => Vec::new(),
        false => renames(functions),
    };
    let renamed = found
        .iter()
        .map(|rename| renamed_row(functions, rename))
        .collect();
    if settings.accept_renames {
        let pairs: Vec<(u32, u32)> = found
            .iter()
            .map(|rename| (rename.from, rename.to))
            .collect();
        functions.join(&pairs);
    }
    let scale = Scale::of(functions, &input, settings);
    let numbers = Numbers::of(functions, settings.inclusive);
    let counts = numbers.counts(functions, &scale, settings);
    let known = input.noise.map(|file| file.noise());
    let judged = Judged::of(&counts, &settings.strictness, known.as_ref());
    let mut comparison = Comparison {
        verdict: Verdict::Pass,
        reasons: input.sides.reasons.clone(),
        notes: input.notes.clone(),
        canon: CANON,
        event: input.event.to_owned(),
        unit: input.unit.to_owned(),
        basis: scale.basis,
        inclusive: settings.inclusive,
        within_run: input.sides.is_single() && input.columns.len() > 2,
        sides: [0, 1].map(|side| summary(functions, &input, side)),
        exposures: scale.exposures.clone(),
        scale: scale.factor,
        total: total_row(functions, &counts, &judged),
        total_judged: matches!(scale.basis, Basis::Work | Basis::Run),
        rows: Vec::new(),
        callers: Vec::new(),
        unjudged: 0,
        unjudged_cost: 0.0,
        renamed,
        renames_accepted: settings.accept_renames,
        noise: judged.noise,
        detectable: detectable(&counts, &judged, settings),
        q: settings.strictness.q,
        alpha: settings.strictness.alpha,
    };
    if !comparison.total_judged {
        comparison.detectable.total = None;
    }
    let numbers = comparison.judge_rows(functions, &counts, &judged, settings);
    comparison.take_shifts(functions, &numbers, &judged, settings);
    comparison.take_allowed(&input, settings);
    comparison.take_callers(functions, &numbers);
    comparison.sort_rows();
    comparison.conclude(&input, settings);
    comparison
}

fn renamed_row(functions: &Functions, rename: &Rename) -> RenamedRow {
    let name = |function: u32| functions.shown(function as usize);
    RenamedRow {
        from: name(rename.from),
        to: name(rename.to),
        score: rename.score,
    }
}

fn summary(functions: &Functions, input: &Input<'_>, side: usize) -> SideSummary {
    let range = input.sides.archives[side].clone();
    let columns = if side == 0 {
        0..functions.first_new
    } else {
        functions.first_new..functions.width
    };
    let sum = |row: &[f64]| {
        row.get(columns.clone())
            .unwrap_or_default()
            .iter()
            .sum::<f64>()
    };
    let is_unnamed = |function: &usize| {
        functions
            .facts
            .get(*function)
            .is_some_and(|facts| facts.is_unnamed)
    };
    let unnamed = (0..functions.keys.len())
        .filter(is_unnamed)
        .map(|function| sum(functions.row(function, false)));
    let unnamed: f64 = unnamed.sum();
    let all = sum(&functions.all);
    let paths = input.archives.get(range.clone()).unwrap_or_default();
    SideSummary {
        archives: paths
            .iter()
            .map(|archive| clean(&archive.path).into_owned())
            .collect(),
        runs: input.sides.runs[side].len(),
        samples: functions
            .samples
            .get(columns.clone())
            .unwrap_or_default()
            .iter()
            .sum(),
        loss: loss(input.archives, &range),
        // The sum of nothing is -0.
        unnamed: if unnamed > 0.0 { unnamed / all } else { 0.0 },
    }
}

fn total_row(functions: &Functions, counts: &Counts<'_>, judged: &Judged) -> ComparedRow {
    let costs = judged
        .total
        .moments
        .means
        .map(|mean| mean * counts.total_unit);
    ComparedRow {
        name: TOTAL.to_owned(),
        line: None,
        declared: None,
        module: String::new(),
        file: None,
        kernel: false,
        cost: costs,
        with_callees: costs,
        unit: counts.total_unit,
        counts: counts.total.counts.map(<[f64]>::to_vec),
        tested: judged.total,
        q_up: judged.total.p_up,
        q_down: judged.total.p_down,
        verdict: if functions.width == 0 {
            RowVerdict::Same
        } else {
            total_verdict(judged)
        },
        why: None,
    }
}

fn total_verdict(judged: &Judged) -> RowVerdict {
    let alpha = judged.strictness.alpha;
    match &judged.total {
        total if total.p_up <= alpha => RowVerdict::Regression,
        total if total.p_down <= alpha => RowVerdict::Improvement,
        _ => RowVerdict::Same,
    }
}

/// What these runs could find.
fn detectable(counts: &Counts<'_>, judged: &Judged, settings: &Settings) -> Detectable {
    let total = &judged.total;
    let base = total.moments.means[0];
    if base <= 0.0 {
        return Detectable {
            total: None,
            tenth: f64::INFINITY,
        };
    }
    let mean = base / 10.0;
    let exposure = total.moments.expected / total.moments.pooled.max(f64::MIN_POSITIVE);
    let mut moments = Moments {
        means: [mean, mean],
        pooled: mean,
        floor: mean / exposure,
        expected: mean * exposure,
        variance: 0.0,
    };
    moments.variance = judged.noise.expected(&moments);
    let runs = counts.exposures.map(<[f64]>::len);
    let margin = settings.strictness.margin.rate(mean, base);
    let tested = Tested::of(moments, &judged.noise, runs, margin);
    let members = judged
        .is_member
        .iter()
        .filter(|is_member| **is_member)
        .count()
        .max(1);
    Detectable {
        total: Some(total.detectable(settings.strictness.alpha) / base),
        tenth: tested.detectable(settings.strictness.q / members as f64) / mean,
    }
}

impl Comparison {
    /// Make the rows of what was judged; gives the number of each one's function.
    fn judge_rows(
        &mut self,
        functions: &Functions,
        counts: &Counts<'_>,
        judged: &Judged,
        settings: &Settings,
    ) -> Vec<usize> {
        let (mut numbers, mut unjudged) = (Vec::new(), 0.0);
        let parts = counts.items.iter().zip(&judged.functions).enumerate();
        for (number, (item, tested)) in parts {
            let unit = counts.units.get(number).copied().unwrap_or(1.0);
            let costs = tested.moments.means.map(|mean| mean * unit);
            let is_member = judged
                .is_member
                .get(number)
                .is_some_and(|is_member| *is_member);
            let (Some(key), Some(facts)) =
                (functions.keys.get(number), functions.facts.get(number))
            else {
                continue;
            };
            if !is_member {
                self.unjudged += usize::from(costs.iter().any(|cost| *cost > 0.0));
                unjudged += costs[0] + costs[1];
                continue;
            }
            let verdict = match (
                judged.is_up(number, &settings.strictness),
                judged.is_down(number, &settings.strictness),
            ) {
                (true, _) => RowVerdict::Regression,
                (_, true) => RowVerdict::Improvement,
                _ => RowVerdict::Same,
            };
            numbers.push(number);
            self.rows.push(ComparedRow {
                name: key.name.clone(),
                line: key.line,
                declared: facts.declared.clone(),
                module: facts.module.clone(),
                file: facts.file.clone(),
                kernel: key.kernel,
                cost: costs,
                with_callees: mean_rates(functions.row(number, true), counts.exposures),
                unit,
                counts: item.counts.map(<[f64]>::to_vec),
                tested: *tested,
                q_up: judged.q_up.get(number).copied().unwrap_or(1.0),
                q_down: judged.q_down.get(number).copied().unwrap_or(1.0),
                verdict,
                why: None,
            });
        }
        let all = self.total.cost[0] + self.total.cost[1];
        self.unjudged_cost = if all > 0.0 { unjudged / all } else { 0.0 };
        numbers
    }

    /// Mark functions whose cost moved; `numbers` are those of the rows' functions.
    fn take_shifts(
        &mut self,
        functions: &Functions,
        numbers: &[usize],
        judged: &Judged,
        settings: &Settings,
    ) {
        if self.inclusive {
            return;
        }
        let risen: Vec<(usize, usize, f64)> = self
            .rows
            .iter()
            .zip(numbers)
            .enumerate()
            .filter(|(_, (row, _))| row.verdict == RowVerdict::Regression)
            .map(|(place, (row, &function))| (place, function, row.change()))
            .collect();
        let asked: Vec<(usize, f64)> = risen
            .iter()
            .map(|&(_, function, rise)| (function, rise))
            .collect();
        let yardstick = Yardstick {
            exposures: [&self.exposures[0], &self.exposures[1]],
            noise: &judged.noise,
            margin: settings.strictness.margin,
            total: self.total.cost[0],
            unit: self.total.unit,
        };
        let domains = moved(functions, &asked, &yardstick);
        for ((place, _, _), domain) in risen.into_iter().zip(domains) {
            if let (Some(domain), Some(row)) = (domain, self.rows.get_mut(place)) {
                row.verdict = RowVerdict::Moved;
                row.why = Some(format!("within {domain}"));
            }
        }
    }

    /// Mark what is accepted. Days are those of the new side's recording, so that the same archives always give the
    /// same answer.
    fn take_allowed(&mut self, input: &Input<'_>, settings: &Settings) {
        let news = input
            .archives
            .get(input.sides.archives[1].clone())
            .unwrap_or_default();
        let walls = news
            .iter()
            .filter_map(|archive| Some(archive.recording.as_ref()?.start_wall_ns));
        let today = walls
            .max()
            .map(|wall| i64::try_from(wall / DAY_NS).unwrap_or(i64::MAX));
        let mut expired = Vec::new();
        for row in self.rows.iter_mut().chain([&mut self.total]) {
            if row.verdict != RowVerdict::Regression {
                continue;
            }
            for allowed in settings
                .allowed
                .iter()
                .filter(|allowed| allowed.pattern.is_match(&row.name))
            {
                let is_over = allowed
                    .until
                    .zip(today)
                    .is_some_and(|(until, today)| today > until);
                let fits = allowed
                    .up_to
                    .is_none_or(|up_to| row.relative().is_some_and(|change| change <= up_to));
                if is_over {
                    expired.push(format!(
                        "{} is no longer allowed: {}",
                        row.name, allowed.reason
                    ));
                } else if fits {
                    row.verdict = RowVerdict::Allowed;
                    row.why = Some(allowed.reason.clone());
                    break;
                }
            }
        }
        self.notes.extend(expired);
    }

    /// Find what the rows that got slower have in common; `numbers` are those of the rows' functions.
    fn take_callers(&mut self, functions: &Functions, numbers: &[usize]) {
        let rows = self.rows.iter().zip(numbers);
        let risen = rows.filter(|(row, _)| row.verdict == RowVerdict::Regression);
        let risen = risen.filter_map(|(_, &function)| u32::try_from(function).ok());
        let exposures = [&self.exposures[0][..], &self.exposures[1]];
        self.callers = common_callers(functions, &risen.collect(), exposures);
    }

    fn sort_rows(&mut self) {
        self.rows.sort_by(|a, b| {
            let size = |row: &ComparedRow| row.change().abs();
            let place = |row: &ComparedRow| {
                let (name, module, declared) =
                    (row.name.clone(), row.module.clone(), row.declared.clone());
                (name, module, row.kernel, row.line, declared)
            };
            a.verdict
                .cmp(&b.verdict)
                .then(size(b).total_cmp(&size(a)))
                .then_with(|| place(a).cmp(&place(b)))
        });
    }
}
