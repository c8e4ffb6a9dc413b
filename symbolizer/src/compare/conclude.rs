//! What comes of a comparison: a verdict, or why there is none.

use super::comparison::{Comparison, RowVerdict, Verdict};
use super::judge::Input;
use super::settings::{Basis, Settings};
use super::sides::{NAMES, differences};

/// Part of the cost of one function from which on a normal run cannot be told by the others.
const DOMINANT: f64 = 0.5;

impl Comparison {
    /// Say what comes of it. What forbids to rely on the numbers goes before what they say.
    pub(super) fn conclude(&mut self, input: &Input<'_>, settings: &Settings) {
        let doubts = self.doubts(input, settings);
        self.reasons.extend(doubts);
        let found = self.count(RowVerdict::Regression);
        let total = self.total_judged && self.total.verdict == RowVerdict::Regression;
        if !self.reasons.is_empty() {
            self.verdict = Verdict::Inconclusive;
        } else if total || found > 0 {
            self.verdict = Verdict::Regression;
            if total {
                self.reasons.push("the total cost rose".to_owned());
            }
            if found > 0 {
                self.reasons.push(match found {
                    1 => "1 function got slower".to_owned(),
                    found => format!("{found} functions got slower"),
                });
            }
        } else if let Some(wanted) = settings.detect {
            let reach = self.detectable.total.unwrap_or(self.detectable.tenth);
            if reach > wanted {
                self.verdict = Verdict::Inconclusive;
                self.reasons.push(format!(
                    "a rise below {:.1} % could not be found in these runs, and {:.1} % was asked for; record more runs",
                    reach * 100.0,
                    wanted * 100.0
                ));
            }
        }
    }

    fn doubts(&self, input: &Input<'_>, settings: &Settings) -> Vec<String> {
        let mut doubts = differences(input.archives, input.sides, input.event);
        let single = input.sides.is_single();
        if single && input.noise.is_none() {
            doubts.push(
                "there is one run a side, so what is found holds within this run only: record several (-r 5), or give \
                 the noise of this machine (--noise)"
                    .to_owned(),
            );
        }
        self.doubt_sides(single, input, settings, &mut doubts);
        let [base, new] = &self.sides;
        if (base.unnamed - new.unnamed).abs() > settings.max_unnamed {
            let (base, new) = (base.unnamed * 100.0, new.unnamed * 100.0);
            doubts.push(format!("{base:.1} % of BASE has no names, and {new:.1} % of NEW: give both sides' debug files"));
        }
        if let Some(noise) = input.noise {
            doubts.extend(noise.misfits(input));
        }
        if self.basis == Basis::Ratio
            && let Some(row) = self
                .rows
                .iter()
                .find(|row| row.cost[0] > DOMINANT * self.total.cost[0])
        {
            doubts.push(format!(
                "{} has most of the cost, so without a declared work (--work) nothing tells its change from a longer run",
                row.name
            ));
        }
        doubts
    }

    /// What is wrong with either side by itself.
    fn doubt_sides(
        &self,
        single: bool,
        input: &Input<'_>,
        settings: &Settings,
        doubts: &mut Vec<String>,
    ) {
        for (side, name) in self.sides.iter().zip(NAMES) {
            if side.samples == 0 {
                doubts.push(format!("{name} has no samples of this event"));
            }
            if side.runs < settings.min_runs && !(single || input.noise.is_some()) {
                let (runs, least) = (side.runs, settings.min_runs);
                doubts.push(format!(
                    "{name} has {runs} runs, and {least} are needed (--min-runs)"
                ));
            }
            if side.loss > settings.max_loss {
                let percent = side.loss * 100.0;
                doubts.push(format!("{percent:.1} % of the samples of {name} were lost"));
            }
        }
    }
}
