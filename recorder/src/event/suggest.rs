//! Names near a name that is not there.

/// Names that are told at most.
const SHOWN: usize = 4;
/// Names longer than this are cut before they are compared.
const MAX_LENGTH: usize = 128;

/// `; did you mean a, b?` for a wrong name, or nothing when none is near.
pub(crate) fn did_you_mean<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let near = nearest(wrong, names);
    if near.is_empty() {
        return String::new();
    }
    format!("; did you mean {}?", near.join(", "))
}

/// The nearest names, best first: those that differ by little, then those that hold the wrong name or are in it.
fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wrong = wrong.to_lowercase();
    let limit = wrong.chars().count().div_ceil(3).min(4);
    let mut rated: Vec<(usize, &str)> = names
        .into_iter()
        .filter_map(|name| {
            let lower = name.to_lowercase();
            let distance = distance(&wrong, &lower, limit);
            let is_part = wrong.len() >= 3 && (lower.contains(&wrong) || is_inside(&lower, &wrong));
            let rating = match distance {
                Some(distance) => distance,
                // Behind all that are near, the shorter first.
                None if is_part => limit + 1 + lower.len(),
                None => return None,
            };
            Some((rating, name))
        })
        .collect();
    rated.sort_unstable();
    rated.dedup();
    rated
        .into_iter()
        .take(SHOWN)
        .map(|(_, name)| name)
        .collect()
}

fn is_inside(name: &str, wrong: &str) -> bool {
    name.len() >= 4 && wrong.contains(name)
}

/// Letters to insert, remove, replace or swap to make `a` of `b`; `None` when more than `limit`.
fn distance(a: &str, b: &str, limit: usize) -> Option<usize> {
    let a: Vec<char> = a.chars().take(MAX_LENGTH).collect();
    let b: Vec<char> = b.chars().take(MAX_LENGTH).collect();
    if a.len().abs_diff(b.len()) > limit {
        return None;
    }
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, &letter) in a.iter().enumerate() {
        let mut row = vec![i + 1; b.len() + 1];
        for (j, &other) in b.iter().enumerate() {
            let mut cost = (last[j] + usize::from(letter != other))
                .min(last[j + 1] + 1)
                .min(row[j] + 1);
            let is_swap = i > 0 && j > 0 && letter == b[j - 1] && other == a[i - 1];
            if is_swap {
                cost = cost.min(before_last[j - 1] + 1);
            }
            row[j + 1] = cost;
        }
        (before_last, last) = (last, row);
    }
    Some(last[b.len()]).filter(|&distance| distance <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that typing errors find the name, that parts do, and that strangers do not.
    #[test]
    fn near_names() {
        let names = ["page-faults", "major-faults", "cpu-clock", "cycles"];
        assert_eq!(nearest("pgae-faults", names), ["page-faults"]);
        assert_eq!(nearest("cycle", names), ["cycles"]);
        assert_eq!(nearest("faults", names), ["page-faults", "major-faults"]);
        assert_eq!(did_you_mean("tlb-shootdowns", names), "");
        assert_eq!(did_you_mean("cpuclock", names), "; did you mean cpu-clock?");
    }
}
