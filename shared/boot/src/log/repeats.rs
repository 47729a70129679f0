//! Lines that repeat: the first is logged, further ones are counted. The count is logged each minute, and
//! when the repeats have ended. The clock is passed in.

use std::{collections::HashMap, time::Duration};

use tracing::Level;

/// Repeats have ended when none came for this long.
const ENDED: Duration = Duration::from_secs(20);
/// Time between two counts of repeats that go on.
const REPORTED_EVERY: Duration = Duration::from_mins(1);
/// Lines that are remembered. While so many are, others count as new.
const LINES: usize = 256;

/// The last lines, by the hash of what they say.
#[derive(Debug, Default)]
pub(super) struct Repeats(HashMap<u64, Line>);

#[derive(Debug)]
struct Line {
    level: Level,
    /// The text, for the count.
    text: String,
    /// The times since the line, or since its last count.
    since: Duration,
    last: Duration,
    times: u64,
}

/// The count of a line that repeated.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) level: Level,
    pub(super) text: String,
    pub(super) times: u64,
    /// The time in which they came.
    pub(super) within: Duration,
    pub(super) ended: bool,
}

impl Repeats {
    /// Notes a line. Returns true if it is to be logged. `now` is the time since the start.
    pub(super) fn is_new(
        &mut self,
        hash: u64,
        level: Level,
        text: impl FnOnce() -> String,
        now: Duration,
    ) -> bool {
        if let Some(line) = self.0.get_mut(&hash) {
            line.times += 1;
            line.last = now;
            return false;
        }
        if self.0.len() < LINES {
            let text = text();
            self.0.insert(hash, Line { level, text, since: now, last: now, times: 0 });
        }
        true
    }

    /// Takes the counts that are due, and forgets the lines whose repeats have ended.
    pub(super) fn take(&mut self, now: Duration) -> Vec<Counted> {
        let mut counted = Vec::new();
        self.0.retain(|_, line| {
            let ended = now.saturating_sub(line.last) >= ENDED;
            let is_due = ended || now.saturating_sub(line.since) >= REPORTED_EVERY;
            if is_due && line.times > 0 {
                counted.push(Counted {
                    level: line.level,
                    text: line.text.clone(),
                    times: std::mem::take(&mut line.times),
                    within: line.last.saturating_sub(line.since),
                    ended,
                });
                line.since = now;
            }
            !ended
        });
        counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn note(repeats: &mut Repeats, hash: u64, at: u32) -> bool {
        repeats.is_new(hash, Level::WARN, || format!("line {hash}"), SECOND * at)
    }

    #[test]
    fn a_line_that_repeats_is_logged_once_then_counted_each_minute_and_at_its_end() {
        let mut repeats = Repeats::default();
        let logged: Vec<bool> = (0..75).map(|at| note(&mut repeats, 1, at)).collect();
        assert_eq!(logged.iter().filter(|logged| **logged).count(), 1);
        assert!(note(&mut repeats, 2, 74), "another line is another one");
        let [counted] = repeats.take(SECOND * 75).try_into().unwrap();
        assert_eq!((counted.times, counted.ended, &*counted.text), (74, false, "line 1"));
        assert!(!note(&mut repeats, 1, 80));
        assert!(repeats.take(SECOND * 90).is_empty());
        let [counted] = repeats.take(SECOND * 100).try_into().unwrap();
        assert_eq!((counted.times, counted.ended), (1, true));
        assert!(note(&mut repeats, 1, 101), "it is forgotten");
    }

    #[test]
    fn few_lines_are_remembered() {
        let mut repeats = Repeats::default();
        assert!((0..1000).all(|hash| note(&mut repeats, hash, 0)));
        assert_eq!(repeats.0.len(), LINES);
        assert!(repeats.take(ENDED).is_empty(), "none of them repeated");
        assert!(repeats.0.is_empty());
    }
}
