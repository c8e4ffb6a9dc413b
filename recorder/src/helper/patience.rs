//! Whom not to ask for a while, and how much time may be lost with waiting. Knows no processes and reads no clock.

use std::time::{Duration, Instant};

use hashbrown::HashMap;

/// Longest wait for an answer of a worker that is blocked.
pub(super) const DEADLINE: Duration = Duration::from_millis(100);
/// Longest wait for an answer of one that is only slow: it runs, or would if it got a CPU.
pub(super) const SLOW_DEADLINE: Duration = Duration::from_secs(1);
/// How long what hung is left alone the first time; twice as long each time after that.
const FIRST_REST: Duration = Duration::from_secs(1);
/// Longest rest.
const LAST_REST: Duration = Duration::from_secs(60);
/// Time that may be lost at once.
const BUDGET: Duration = Duration::from_millis(500);
/// One part in so many of the time may be lost in the long run.
const SHARE: u32 = 10;
/// Suspects that are remembered at most.
const MAX_SUSPECTS: usize = 4096;

/// What a request may hang on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Suspect {
    /// A process.
    Process(u32),
    /// A file system, by major and minor device number.
    Device(u32, u32),
}

/// What hung.
#[derive(Clone, Copy, Debug)]
struct Rest {
    until: Instant,
    length: Duration,
}

/// Who rests, and what time is left to lose.
#[derive(Debug)]
pub(super) struct Patience {
    resting: HashMap<Suspect, Rest>,
    left: Duration,
    counted: Instant,
}

impl Patience {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            resting: HashMap::new(),
            left: BUDGET,
            counted: now,
        }
    }

    /// Whether a request that may hang on these can be sent.
    pub(super) fn allows(&mut self, suspects: &[Suspect], now: Instant) -> bool {
        if self.resting.is_empty() && self.left == BUDGET {
            return true;
        }
        let gained = now.saturating_duration_since(self.counted) / SHARE;
        (self.left, self.counted) = (BUDGET.min(self.left + gained), now);
        let rests = |suspect| {
            let rest: Option<&Rest> = self.resting.get(suspect);
            rest.is_some_and(|rest| rest.until > now)
        };
        self.left >= DEADLINE && !suspects.iter().any(rests)
    }

    /// A request hung on these: `lost` is gone.
    pub(super) fn hung(&mut self, suspects: &[Suspect], lost: Duration, now: Instant) {
        self.left = self.left.saturating_sub(lost);
        self.counted = now;
        if self.resting.len() >= MAX_SUSPECTS {
            self.resting.retain(|_, rest| rest.until > now);
        }
        for &suspect in suspects {
            if self.resting.len() >= MAX_SUSPECTS && !self.resting.contains_key(&suspect) {
                continue;
            }
            let rest = self.resting.entry(suspect).or_insert(Rest {
                until: now,
                length: FIRST_REST / 2,
            });
            rest.length = LAST_REST.min(rest.length * 2);
            rest.until = now + rest.length;
        }
    }

    /// These answered.
    pub(super) fn answered(&mut self, suspects: &[Suspect]) {
        if !self.resting.is_empty() {
            for suspect in suspects {
                self.resting.remove(suspect);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Suspect = Suspect::Process(1);
    const GOOD: Suspect = Suspect::Process(2);

    /// Check that what hung rests, longer each time, while others are asked, and is forgiven when it answers.
    #[test]
    fn rests() {
        let start = Instant::now();
        let mut patience = Patience::new(start);
        patience.hung(&[SLOW], DEADLINE, start);
        assert!(!patience.allows(&[GOOD, SLOW], start));
        assert!(patience.allows(&[GOOD], start));
        let later = start + FIRST_REST;
        assert!(patience.allows(&[SLOW], later));
        patience.hung(&[SLOW], DEADLINE, later);
        assert!(!patience.allows(&[SLOW], later + FIRST_REST));
        assert!(patience.allows(&[SLOW], later + 2 * FIRST_REST));
        patience.answered(&[SLOW]);
        assert!(patience.allows(&[SLOW], later));
    }

    /// Check that many that hang cannot take more than their share of the time.
    #[test]
    fn budget() {
        let start = Instant::now();
        let mut patience = Patience::new(start);
        let (mut now, mut lost) = (start, Duration::ZERO);
        for pid in 0..100_000 {
            let suspects = [Suspect::Process(pid)];
            if patience.allows(&suspects, now) {
                patience.hung(&suspects, DEADLINE, now + DEADLINE);
                (now, lost) = (now + DEADLINE, lost + DEADLINE);
            }
            now += Duration::from_millis(1);
        }
        let most = BUDGET + (now - start) / SHARE + DEADLINE;
        assert!(lost > BUDGET && lost <= most, "{lost:?} of {most:?}");
        assert!(patience.resting.len() <= MAX_SUSPECTS);
    }
}
