//! The reach of the ledger, and when its limit in bytes will shorten that.

use std::time::Duration;

use push_model::{
    ledger::{History, Retention},
    time::UnixMillis,
};
use push_store::Finding;

use crate::doctor::human;

/// A shorter history is no base for a forecast.
const FORECAST_FROM: Duration = Duration::from_mins(10);

const SUBJECT: &str = "ledger";

/// Judges the ledger by the last measurement, which a worker makes every 10 seconds; `None`
/// before the first.
pub(in crate::doctor) fn judge(
    history: Option<History>,
    retention: Retention,
    now: UnixMillis,
) -> Finding {
    let Some(History { measured_at, bytes, limit, oldest, evicted }) = history else {
        return Finding::skipped(SUBJECT, "start a worker, which measures it every 10s");
    };
    let age = now.since(measured_at);
    let reach = oldest.map_or(Duration::ZERO, |oldest| measured_at.since(oldest));
    let mut detail = format!(
        "{} of {}, reaches back {}",
        human::bytes(bytes),
        human::bytes(limit),
        human::duration(reach)
    );
    let mut remedies = Vec::new();
    if age > Duration::from_mins(10) {
        detail.push_str(&format!(" (measured {} ago)", human::duration(age)));
        remedies.push("start a worker, or see in its log why it does not measure the ledger");
    }
    let longest = retention.named.max(retention.broadcast);
    // The reach once the limit is reached, if entries are begun at the rate since the oldest one.
    let at_limit = reach.as_secs_f64() * limit as f64 / bytes.max(1) as f64;
    let at_limit = Duration::try_from_secs_f64(at_limit).unwrap_or(Duration::MAX);
    if at_limit < longest && evicted > 0 {
        detail.push_str(&format!("; {evicted} entries were evicted for its limit"));
        remedies.push(
            "raise --ledger-limit, or keep less with --ledger-retention-named and \
             --ledger-retention",
        );
    } else if at_limit < longest && reach >= FORECAST_FROM {
        detail.push_str(&format!(
            "; at this rate its limit is reached in {}, and history reaches back {} from then on: \
             raise --ledger-limit for more",
            human::duration(at_limit.saturating_sub(reach)),
            human::duration(at_limit)
        ));
    }
    match remedies.is_empty() {
        true => Finding::ok(SUBJECT, detail),
        false => Finding::warning(SUBJECT, detail, remedies.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use push_store::Level;

    use super::*;

    const DAY: Duration = Duration::from_hours(24);
    const KEPT: Retention =
        Retention { named: Duration::from_hours(48), broadcast: Duration::from_hours(168) };

    /// Returns the level, and the text with the remedy.
    fn judged(bytes: u64, reach: Duration, evicted: u64) -> (Level, String) {
        let now = UnixMillis(1_700_000_000_000);
        let oldest = Some(UnixMillis(now.0 - reach.as_millis() as u64));
        let history = History { measured_at: now, bytes, limit: 1 << 30, oldest, evicted };
        let found = judge(Some(history), KEPT, now);
        let remedy = found.remedy().map_or_else(String::new, |remedy| format!("; {remedy}"));
        (found.level, found.detail + &remedy)
    }

    #[test]
    fn a_ledger_that_stays_below_its_limit_is_as_it_should_be() {
        let (level, detail) = judged(1 << 20, DAY, 0);
        assert_eq!(
            (level, detail.as_str()),
            (Level::Ok, "1.00 MiB of 1.00 GiB, reaches back 24 hours")
        );
        assert_eq!(judge(None, KEPT, UnixMillis(5)).level, Level::Skipped, "nothing is known yet");
    }

    #[test]
    fn one_that_grows_so_fast_that_its_limit_will_cut_history_says_when() {
        let (level, detail) = judged(1 << 29, DAY, 0);
        assert_eq!(level, Level::Ok);
        assert!(
            detail.contains("reached in 24 hours, and history reaches back 2 days from then on"),
            "{detail}"
        );
        let (_, detail) = judged(1 << 20, Duration::from_secs(1), 0);
        assert!(!detail.contains("at this rate"), "too early to tell: {detail}");
    }

    #[test]
    fn one_that_evicts_for_its_limit_is_a_warning_and_says_what_to_set() {
        let (level, detail) = judged((1 << 30) - 1, DAY, 77);
        assert_eq!(level, Level::Warning);
        assert!(
            detail.contains("77 entries were evicted for its limit; raise --ledger-limit"),
            "{detail}"
        );
    }

    #[test]
    fn one_that_no_worker_looks_at_any_more_says_so() {
        let now = UnixMillis(1_700_000_000_000);
        let history = History {
            measured_at: UnixMillis(now.0 - 3_600_000),
            bytes: 0,
            limit: 1,
            oldest: None,
            evicted: 0,
        };
        let found = judge(Some(history), KEPT, now);
        assert_eq!(found.level, Level::Warning);
        assert!(found.detail.ends_with("(measured 60 minutes ago)"), "{found:?}");
        assert!(found.remedy().unwrap().starts_with("start a worker"), "{found:?}");
    }
}
