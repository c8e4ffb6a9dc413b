//! Numbers with units, as people write them on a command line: times, sizes, lists of CPUs.

use std::time::Duration;

/// A time: a number with `ns`, `us`, `ms`, `s`, `m`, `h` or `d`; above zero.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let seconds = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    let duration = Duration::try_from_secs_f64(number * seconds).ok()?;
    (!duration.is_zero()).then_some(duration)
}

/// A size in bytes: a number with `K`, `M`, `G` or `T`, powers of 1024, with `B` or `iB` behind it if one likes.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let unit = unit
        .strip_suffix("iB")
        .or(unit.strip_suffix('B'))
        .unwrap_or(unit);
    let factor = match unit {
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    let bytes = number * f64::from(1u32 << 10).powi(factor / 10);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be in range"
    )]
    let whole = bytes as u64;
    (bytes >= 1.0 && bytes < 2f64.powi(63)).then_some(whole)
}

/// The number at the start, and what is behind it.
fn split(text: &str) -> Option<(f64, &str)> {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = text.get(..text.len() - rest.len())?.parse().ok()?;
    Some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that times are read with each unit, and that nonsense is refused.
    #[test]
    fn durations() {
        assert_eq!(parse_duration("10s"), Some(Duration::from_secs(10)));
        assert_eq!(parse_duration("1.5m"), Some(Duration::from_secs(90)));
        assert_eq!(parse_duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_duration("20us"), Some(Duration::from_micros(20)));
        for bad in ["", "s", "-1s", "0s", "1x", "1e400s", ".", "10M", "9.9.9s"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }

    /// Check that sizes are powers of 1024, and that a time is none.
    #[test]
    fn sizes() {
        assert_eq!(parse_size("1K"), Some(1024));
        assert_eq!(parse_size("64MiB"), Some(64 << 20));
        assert_eq!(parse_size("1.5GB"), Some(3 << 29));
        for bad in ["", "M", "0M", "10m", "10s", "-1M", "99999999999T", "10"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }
}
