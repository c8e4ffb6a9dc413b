//! Nanoseconds since 1970 → the day, in UTC.

const DAY_NS: u64 = 86_400_000_000_000;

/// `YYYY-MM-DD`, by Howard Hinnant's `civil_from_days`.
pub(super) fn date(wall_ns: u64) -> String {
    // Days since 0000-03-01, so that a leap day is the last one of its year.
    let days = wall_ns / DAY_NS + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check days around leap days and years' ends with what `date -u -d @SECONDS +%F` says.
    #[test]
    fn days() {
        let seconds = [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_764_000_000, "2025-11-24"),
            (1_798_761_599, "2026-12-31"),
            (4_107_542_400, "2100-03-01"),
            (u64::MAX / 1_000_000_000, "2554-07-21"),
        ];
        for (seconds, day) in seconds {
            assert_eq!(date(seconds * 1_000_000_000), day);
        }
    }
}
