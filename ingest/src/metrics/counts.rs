//! The counters of pushes that the record of this `ingest` in the index is made of. They are read from the
//! metrics every few seconds, so a push pays nothing for them.

use std::collections::BTreeMap;

use push_model::{codes::PushCode, components::IngestCount};

use super::{Answer, Metrics};
use crate::route::Route;

/// The statuses of errors that are not codes of pushes.
const HTTP_ERRORS: std::ops::RangeInclusive<u32> = 400..=599;

/// The calls whose answers are answers to pushes: one push, and each line of many. A request with many
/// that is refused as a whole counts once.
const CALLS: [&str; 3] = [Route::PUSH, Route::PUSH_BATCH, Route::BATCH_LINE];

impl Metrics {
    /// The pushes that were answered since the start.
    pub fn counts(&self) -> BTreeMap<IngestCount, u64> {
        let answered = |call, status| {
            self.answers.get(&Answer { call, status }).map_or(0, |counter| counter.get())
        };
        let accepted = answered(Route::PUSH, 200) + answered(Route::BATCH_LINE, 200);
        let statuses = HTTP_ERRORS.chain(PushCode::ALL.map(PushCode::number));
        let refused = statuses.map(|status| {
            let pushes = CALLS.iter().map(|call| answered(call, status)).sum();
            (IngestCount::Refused(status), pushes)
        });
        let all = refused.chain([(IngestCount::Accepted, accepted)]);
        all.filter(|(_, pushes)| *pushes > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn pushes_are_counted_by_their_answers_and_other_calls_are_not() {
        let metrics = Metrics::default();
        let took = Duration::from_millis(1);
        metrics.pushed(took);
        metrics.answered_lines(Route::BATCH_LINE, 200, 3);
        metrics.answered_lines(Route::BATCH_LINE, 21005, 1);
        metrics.answered_lines(Route::PATCH_LINE, 200, 7);
        metrics.answered(Route::PUSH, 21005, took);
        metrics.answered(Route::PUSH_BATCH, 503, took);
        metrics.answered(Route::PUSH_BATCH, 200, took);
        metrics.answered("get_device", 404, took);
        assert_eq!(
            metrics.counts(),
            [
                (IngestCount::Accepted, 4),
                (IngestCount::Refused(503), 1),
                (IngestCount::Refused(21005), 2),
            ]
            .into()
        );
    }
}
