//! `rawstack-diff.toml`: thresholds, margins of some functions, and regressions that are accepted for a while.

use regex_lite::{Regex, RegexBuilder};
use serde::Deserialize;
use toml::value::Datetime;

use super::settings::{Allowed, Settings, Special};
use super::stats::Margin;

/// Memory that one regular expression may take, in bytes.
const REGEX_SIZE: usize = 4 << 20;

/// What is wrong with the file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is no TOML, or has keys that are not known.
    #[error("{0}")]
    Toml(String),
    /// A pattern is no regular expression.
    #[error("the pattern `{pattern}` is no regular expression: {why}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// Why.
        why: String,
    },
    /// A value is out of its range.
    #[error("`{key}` is {value}; give {range}")]
    Range {
        /// The key.
        key: &'static str,
        /// Its value.
        value: f64,
        /// What may be given.
        range: &'static str,
    },
    /// An accepted regression has no reason.
    #[error("the allowed pattern `{pattern}` has no reason; say why it is accepted")]
    NoReason {
        /// The pattern.
        pattern: String,
    },
    /// A day is no date.
    #[error("`until = {until}` is no date; give one as in until = 2027-01-31")]
    NoDate {
        /// What was given.
        until: String,
    },
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct File {
    limits: Limits,
    function: Vec<FunctionEntry>,
    allow: Vec<AllowEntry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Limits {
    margin: Option<f64>,
    margin_total: Option<f64>,
    q: Option<f64>,
    alpha: Option<f64>,
    min_runs: Option<usize>,
    max_loss: Option<f64>,
    max_unnamed: Option<f64>,
    detect: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FunctionEntry {
    pattern: String,
    margin: Option<f64>,
    margin_total: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct AllowEntry {
    pattern: String,
    #[serde(default)]
    reason: String,
    until: Option<Datetime>,
    up_to: Option<f64>,
}

impl Settings {
    /// Take what the text of a file says.
    pub fn read(&mut self, text: &str) -> Result<(), ConfigError> {
        let file: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| {
                let before = text.get(..span.start).unwrap_or_default();
                before.matches('\n').count() + 1
            });
            let message = error.message().lines().collect::<Vec<_>>().join(" ");
            ConfigError::Toml(
                line.map_or(message.clone(), |line| format!("line {line}: {message}")),
            )
        })?;
        self.take_limits(&file.limits)?;
        for entry in file.function {
            let margin = Margin {
                of_own: part("margin", entry.margin)?.unwrap_or(self.strictness.margin.of_own),
                of_total: part("margin-total", entry.margin_total)?
                    .unwrap_or(self.strictness.margin.of_total),
            };
            self.special.push(Special {
                pattern: pattern(&entry.pattern)?,
                margin,
            });
        }
        for entry in file.allow {
            if entry.reason.trim().is_empty() {
                return Err(ConfigError::NoReason {
                    pattern: entry.pattern,
                });
            }
            self.allowed.push(Allowed {
                pattern: pattern(&entry.pattern)?,
                reason: entry.reason,
                until: entry.until.map(day).transpose()?,
                up_to: part("up-to", entry.up_to)?,
            });
        }
        Ok(())
    }

    fn take_limits(&mut self, limits: &Limits) -> Result<(), ConfigError> {
        let margin = &mut self.strictness.margin;
        margin.of_own = part("margin", limits.margin)?.unwrap_or(margin.of_own);
        margin.of_total = part("margin-total", limits.margin_total)?.unwrap_or(margin.of_total);
        self.strictness.q = probability("q", limits.q)?.unwrap_or(self.strictness.q);
        self.strictness.alpha =
            probability("alpha", limits.alpha)?.unwrap_or(self.strictness.alpha);
        self.min_runs = limits.min_runs.unwrap_or(self.min_runs);
        self.max_loss = part("max-loss", limits.max_loss)?.unwrap_or(self.max_loss);
        self.max_unnamed = part("max-unnamed", limits.max_unnamed)?.unwrap_or(self.max_unnamed);
        self.detect = part("detect", limits.detect)?.or(self.detect);
        Ok(())
    }
}

/// Percent as a part.
pub fn part(key: &'static str, percent: Option<f64>) -> Result<Option<f64>, ConfigError> {
    let is_good = |value: &f64| value.is_finite() && *value >= 0.0;
    match percent {
        Some(value) if !is_good(&value) => Err(ConfigError::Range {
            key,
            value,
            range: "percent, 0 or more",
        }),
        percent => Ok(percent.map(|percent| percent / 100.0)),
    }
}

/// A probability.
pub fn probability(key: &'static str, given: Option<f64>) -> Result<Option<f64>, ConfigError> {
    match given {
        Some(value) if !(value > 0.0 && value < 1.0) => Err(ConfigError::Range {
            key,
            value,
            range: "a number between 0 and 1",
        }),
        given => Ok(given),
    }
}

/// A pattern of names.
pub fn pattern(text: &str) -> Result<Regex, ConfigError> {
    let made = RegexBuilder::new(text).size_limit(REGEX_SIZE).build();
    made.map_err(|error| ConfigError::Pattern {
        pattern: text.escape_debug().to_string(),
        why: error
            .to_string()
            .lines()
            .last()
            .unwrap_or_default()
            .trim()
            .to_owned(),
    })
}

/// A date as days since 1970.
fn day(date: Datetime) -> Result<i64, ConfigError> {
    let found = date.date.ok_or_else(|| ConfigError::NoDate {
        until: date.to_string(),
    })?;
    Ok(days_since_1970(
        i64::from(found.year),
        i64::from(found.month),
        i64::from(found.day),
    ))
}

/// Days since 1970 of a date of the Gregorian calendar (Howard Hinnant's `days_from_civil`).
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check a whole file, the margin that a function gets, and the day of a date.
    #[test]
    fn whole_file() {
        let mut settings = Settings::default();
        let text = "[limits]\nmargin = 5\nmin-runs = 4\ndetect = 10\n\
                    [[function]]\npattern = '^parse'\nmargin = 1\n\
                    [[allow]]\npattern = 'gc'\nreason = 'new collector'\nuntil = 2027-01-31\nup-to = 20\n";
        settings.read(text).unwrap();
        assert_eq!(
            settings.margin("parse_x"),
            Margin {
                of_own: 0.01,
                of_total: 0.001
            }
        );
        assert_eq!(
            settings.margin("x"),
            Margin {
                of_own: 0.05,
                of_total: 0.001
            }
        );
        assert_eq!((settings.min_runs, settings.detect), (4, Some(0.1)));
        let allowed = &settings.allowed[0];
        // 2027-01-31 12:00 UTC is 1801396800 s since 1970.
        assert_eq!(
            (allowed.until, allowed.up_to),
            (Some(1_801_396_800 / 86_400), Some(0.2))
        );
        assert_eq!(days_since_1970(1970, 1, 1), 0);
        assert_eq!(days_since_1970(2000, 2, 29), 11_016);
    }

    /// Check that what is wrong is told with its place: keys, values, patterns, a missing reason, a time of day.
    #[test]
    fn refused() {
        for (text, said) in [
            ("[limits]\nmargn = 5\n", "line 2: unknown field `margn`"),
            ("[limits]\nmargin = -5\n", "`margin` is -5"),
            ("[limits]\nq = 1\n", "`q` is 1"),
            ("[[function]]\npattern = '('\n", "no regular expression"),
            ("[[allow]]\npattern = 'x'\n", "has no reason"),
            (
                "[[allow]]\npattern = 'x'\nreason = 'r'\nuntil = 07:32:00\n",
                "is no date",
            ),
            ("nothing", "line 1:"),
        ] {
            let error = Settings::default().read(text).unwrap_err().to_string();
            assert!(
                error.contains(said) && error.lines().count() == 1,
                "{text:?}: {error}"
            );
        }
    }
}
