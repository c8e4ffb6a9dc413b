//! The span of time that is shown, moved by keys in steps of a twentieth of the whole.

/// Steps of the whole.
const STEPS: u32 = 20;

/// From which slot of time on, and up to and without which.
pub(super) type Span = (u32, u32);

/// Whether a key moves the span.
pub(super) fn is_key(letter: char) -> bool {
    "[]{},.".contains(letter)
}

/// The span after `letter` was pressed, of `slots` in all; none is the whole.
///
/// `[` and `]` take a step off the start and the end, `{` and `}` give one back, `,` and `.` move both.
pub(super) fn moved(span: Option<Span>, slots: u32, letter: char) -> Option<Span> {
    let step = slots.div_ceil(STEPS).max(1);
    let (from, to) = span.unwrap_or((0, slots));
    let length = to.saturating_sub(from);
    let (from, to) = match letter {
        '[' if length > step => (from + step, to),
        ']' if length > step => (from, to - step),
        '{' => (from.saturating_sub(step), to),
        '}' => (from, to.saturating_add(step).min(slots)),
        ',' => {
            let from = from.saturating_sub(step);
            (from, from + length)
        }
        '.' => {
            let to = to.saturating_add(step).min(slots);
            (to - length, to)
        }
        _ => (from, to),
    };
    ((from, to) != (0, slots)).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check each key at the ends and in between, and that the whole is no span.
    #[test]
    fn keys() {
        assert_eq!(moved(None, 100, '['), Some((5, 100)));
        assert_eq!(moved(Some((5, 100)), 100, '{'), None);
        assert_eq!(moved(Some((5, 100)), 100, ']'), Some((5, 95)));
        assert_eq!(moved(Some((5, 95)), 100, ','), Some((0, 90)));
        assert_eq!(moved(Some((0, 90)), 100, ','), Some((0, 90)));
        assert_eq!(moved(Some((0, 90)), 100, '.'), Some((5, 95)));
        assert_eq!(moved(Some((8, 98)), 100, '.'), Some((10, 100)));
        assert_eq!(moved(Some((0, 90)), 100, '}'), Some((0, 95)));
        assert_eq!(moved(Some((3, 6)), 100, '['), Some((3, 6)));
        assert_eq!(moved(None, 1, ']'), None);
        assert_eq!(moved(None, 0, '.'), None);
    }
}
