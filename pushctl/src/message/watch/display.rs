//! How the progress of a message is shown: as a line for people, or as JSON.

use push_fanout_worker::progress::Progress;
use push_model::{ledger::Entry, report::Report, time::UnixMillis};
use serde_json::{Value, json};

use super::rate::RateEstimator;

/// The progress in one line.
pub(super) fn line(entry: &Entry, progress: Option<Progress>, rate: &RateEstimator) -> String {
    let outcomes = &entry.outcomes;
    let mut parts = vec![entry.state().name().to_owned()];
    if let Some(progress) = progress {
        // Rounded down: 100% only at the end of the audience.
        parts.push(format!("{}%", (progress.share() * 100.0).floor()));
    }
    parts.push(format!("done {} of {} targeted", outcomes.total(), entry.targeted));
    let failed = outcomes.failed.values().sum();
    let counts =
        [("failed", failed), ("expired", outcomes.expired), ("recalled", outcomes.recalled)];
    parts.extend(
        counts
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(what, count)| format!("{what} {count}")),
    );
    if let Some(devices) = rate.devices_per_second() {
        let pace = rate.pace().map_or_else(String::new, |pace| format!(" (pace {pace}/s)"));
        parts.push(format!("{devices:.0}/s{pace}"));
    }
    if let Some(left) = rate.time_left() {
        parts.push(format!("{} left", indicatif::HumanDuration(left)));
    }
    parts.join("  ")
}

/// The report that `message show` prints, with the progress added.
pub(super) fn update(entry: &Entry, progress: Option<Progress>, rate: &RateEstimator) -> Value {
    let mut update = json!(Report::of(entry, UnixMillis::now()));
    if let Some(fields) = update.as_object_mut() {
        fields.insert("progress".to_owned(), json!(progress.map(Progress::share)));
        fields.insert("devices_per_second".to_owned(), json!(rate.devices_per_second()));
        fields.insert("pace".to_owned(), json!(rate.pace()));
        fields.insert(
            "seconds_left".to_owned(),
            json!(rate.time_left().map(|left| left.as_secs_f64())),
        );
    }
    update
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroU32, time::Duration};

    use push_model::ledger::{Checkpoint, FailReason, PartitionState};

    use super::{
        super::{
            rate::Sample,
            tests::{entry, move_to},
        },
        *,
    };

    fn processed(entry: &mut Entry, slots: u64) -> Sample {
        let offset = u32::try_from(slots).unwrap();
        let checkpoint = Checkpoint::At { range: 0, offset };
        move_to(entry, PartitionState { checkpoint, ..PartitionState::default() });
        entry.targeted = slots;
        entry.outcomes.sent = slots - 1;
        entry.outcomes.failed.insert(FailReason::Gone, 1);
        let share = Progress::of(entry).map(Progress::share);
        Sample { at: Duration::from_millis(slots), devices: slots, share }
    }

    #[test]
    fn a_line_tells_state_share_counts_rate_and_time_left() {
        let (mut entry, mut rate) = (entry(), RateEstimator::default());
        for slots in [100, 599] {
            rate.add(processed(&mut entry, slots));
        }
        let progress = Progress::of(&entry);
        assert_eq!(
            line(&entry, progress, &rate),
            "sending  59%  done 599 of 599 targeted  failed 1  1000/s  0 seconds left"
        );
        let update = update(&entry, progress, &rate);
        assert_eq!((&update["progress"], &update["sent"]), (&json!(0.599), &json!(598)));
        assert_eq!(
            (&update["devices_per_second"], &update["pace"]),
            (&json!(1000.0), &json!(null))
        );
        assert!(update["seconds_left"].as_f64().unwrap() < 0.5);
    }

    #[test]
    fn a_line_tells_the_pace_of_the_app_beside_the_rate() {
        let (mut entry, mut rate) = (entry(), RateEstimator::with_pace(NonZeroU32::new(1200)));
        for slots in [100, 599] {
            rate.add(processed(&mut entry, slots));
        }
        let progress = Progress::of(&entry);
        let paced = line(&entry, progress, &rate);
        assert!(paced.contains("  1000/s (pace 1200/s)  "), "{paced}");
        assert_eq!(update(&entry, progress, &rate)["pace"], 1200);
    }
}
