//! How much of a backlog is still worth sending. Pure: it is given envelopes and the time.
//!
//! Only the beginning of a lane is looked at, so what is said is said of the oldest envelopes and
//! of no others. In the task lane a message counts once, however many partitions of it wait; how far
//! these are is no matter, since what is left of a message expires all together.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use push_index::{Finding, Level};
use push_model::{
    envelope::{BadEnvelope, Head, Task, decode_batch},
    ids::MessageId,
    time::UnixMillis,
};
use push_queue::Lane;

/// What some envelopes of a lane hold.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// Envelopes that were looked at.
    envelopes: u64,
    /// Messages in them that have not expired.
    live: u64,
    /// Messages in them that have.
    expired: u64,
    /// Envelopes, or jobs in them, that cannot be read.
    unreadable: u64,
    /// Those that a newer program wrote.
    newer: u64,
    /// When the oldest message was accepted.
    oldest: Option<UnixMillis>,
    /// When the last of those expires that have not yet.
    last_expiry: Option<UnixMillis>,
}

impl Sample {
    /// Reads the envelopes of a lane as they are at a time.
    pub(super) fn of(lane: Lane, envelopes: &[Bytes], now: UnixMillis) -> Self {
        let mut sample = Self { envelopes: envelopes.len() as u64, ..Self::default() };
        let mut messages: BTreeMap<MessageId, Head> = BTreeMap::new();
        for envelope in envelopes {
            for head in heads(lane, envelope) {
                match head {
                    Ok(head) => drop(messages.insert(head.message_id, head)),
                    Err(BadEnvelope::Version(_)) => sample.newer += 1,
                    Err(_) => sample.unreadable += 1,
                }
            }
        }
        for head in messages.values() {
            sample.oldest =
                Some(sample.oldest.map_or(head.accepted_at, |at| at.min(head.accepted_at)));
            if head.expires_at < now {
                sample.expired += 1;
            } else {
                sample.live += 1;
                sample.last_expiry = sample.last_expiry.max(Some(head.expires_at));
            }
        }
        sample
    }

    /// What there is to say about a lane in which `waiting` envelopes wait.
    pub(super) fn finding(self, lane: Lane, waiting: u64, now: UnixMillis) -> Finding {
        let mut parts = vec![counted(waiting, "envelope waits", "envelopes wait")];
        if self.envelopes > 0 {
            let of = match (self.envelopes, waiting) {
                (_, 1) => "in it".to_owned(),
                (1, _) => "in the oldest of them".to_owned(),
                (some, all) if some < all => format!("in the oldest {some} of them"),
                _ => "in them".to_owned(),
            };
            let live = counted(self.live, "message is", "messages are");
            let mut live = format!("{of} {live} still worth sending");
            if let Some(until) = self.last_expiry {
                let last = if self.live == 1 { "until" } else { "the last until" };
                live.push_str(&format!(", {last} {until}"));
            }
            parts.push(live);
            if let Some(oldest) = self.oldest {
                let which = if self.live + self.expired == 1 { "it" } else { "the oldest" };
                parts.push(format!("{which} was accepted {} ago", rounded(now.since(oldest))));
            }
        }
        if self.expired > 0 {
            let expired = counted(self.expired, "has", "have");
            let drop = if self.expired == 1 {
                "drop it and count it"
            } else {
                "drop these and count them"
            };
            parts.push(format!("{expired} expired: workers {drop} so"));
        }
        if self.unreadable > 0 {
            let unreadable = self.unreadable;
            parts.push(format!("{unreadable} cannot be read and will go to the dead letters"));
        }
        if self.newer > 0 {
            let newer = counted(
                self.newer,
                "was written by a newer program and waits",
                "were written by a newer program and wait",
            );
            parts.push(format!("{newer} for newer workers"));
        }
        let level =
            if self.expired > 0 || self.unreadable > 0 { Level::Warning } else { Level::Ok };
        Finding { level, subject: format!("lane {}", lane.name()), detail: parts.join("; ") }
    }
}

/// The messages of an envelope, or why they cannot be read.
fn heads(lane: Lane, envelope: &Bytes) -> Vec<Result<Head, BadEnvelope>> {
    match lane {
        Lane::Jobs => match decode_batch(envelope) {
            Ok(jobs) => jobs
                .into_iter()
                .map(|job| job.map(|job| job.head).map_err(|(_, error)| error))
                .collect(),
            Err(error) => vec![Err(error)],
        },
        Lane::Tasks => vec![Task::decode(envelope).map(|task| task.job.head)],
    }
}

/// A count before what is said of one, or of none or many.
fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// In whole seconds, as people say it.
fn rounded(duration: Duration) -> indicatif::HumanDuration {
    indicatif::HumanDuration(Duration::from_secs(duration.as_secs()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use push_model::{
        envelope::{Job, PartitionTask, Work, encode_alone},
        message::Audience,
    };
    use serde_json::json;

    use super::*;

    const NOW: UnixMillis = UnixMillis(1_000_000);

    fn job(accepted: u64, expires: u64) -> Job {
        let head = Head {
            message_id: MessageId::issue(&"a".parse().unwrap()),
            app_id: "a".parse().unwrap(),
            accepted_at: UnixMillis(accepted),
            expires_at: UnixMillis(expires),
        };
        let payload = json!({
            "message_id": head.message_id, "app_id": head.app_id, "type": 2,
            "accepted_at": accepted, "expires_at": expires,
        });
        let payload = payload.to_string().into();
        let audience = Arc::new(Audience::All);
        let (nonce, continues) = (0, Vec::new());
        Job { head, payload, audience, copy: 0, app_generation: 0, nonce, continues }
    }

    fn task(job: &Job, partition: u32) -> Bytes {
        let work = Work::Partition(PartitionTask {
            partition,
            parent: 0,
            nonce: 0,
            continues: Vec::new(),
            attempt: 0,
            unsaved: None,
            forgotten: false,
        });
        Task { job: job.clone(), plan: None, work }.encode().unwrap()
    }

    #[test]
    fn what_has_expired_is_told_from_what_is_still_worth_sending() {
        let envelopes: Vec<Bytes> =
            [job(10_000, 20_000), job(700_000, 1_300_000), job(900_000, 1_000_000)]
                .iter()
                .map(|job| encode_alone(job).unwrap())
                .collect();
        let finding = Sample::of(Lane::Jobs, &envelopes, NOW).finding(Lane::Jobs, 3, NOW);
        assert_eq!(finding.level, Level::Warning);
        assert_eq!(
            finding.detail,
            "3 envelopes wait; in them 2 messages are still worth sending, the last until \
             1970-01-01T00:21:40.000Z; the oldest was accepted 17 minutes ago; 1 has expired: \
             workers drop it and count it so"
        );
    }

    #[test]
    fn one_is_spoken_of_as_one() {
        let detail = |job: Job, waiting| {
            let envelopes = [encode_alone(&job).unwrap()];
            Sample::of(Lane::Jobs, &envelopes, NOW).finding(Lane::Jobs, waiting, NOW).detail
        };
        assert_eq!(
            detail(job(880_000, 1_300_000), 1),
            "1 envelope waits; in it 1 message is still worth sending, until \
             1970-01-01T00:21:40.000Z; it was accepted 2 minutes ago"
        );
        assert_eq!(
            detail(job(880_000, 950_000), 2),
            "2 envelopes wait; in the oldest of them 0 messages are still worth sending; it was \
             accepted 2 minutes ago; 1 has expired: workers drop it and count it so"
        );
    }

    #[test]
    fn a_sample_is_called_one() {
        let envelopes = [job(900_000, 2_000_000), job(900_000, 2_000_000)]
            .map(|job| encode_alone(&job).unwrap());
        let finding = Sample::of(Lane::Jobs, &envelopes, NOW).finding(Lane::Jobs, 5000, NOW);
        assert_eq!(finding.level, Level::Ok);
        assert!(
            finding.detail.starts_with("5000 envelopes wait; in the oldest 2 of them 2 messages"),
            "{}",
            finding.detail
        );
        let empty = Sample::of(Lane::Jobs, &[], NOW).finding(Lane::Jobs, 0, NOW);
        assert_eq!((empty.level, empty.detail.as_str()), (Level::Ok, "0 envelopes wait"));
    }

    #[test]
    fn a_broadcast_counts_once_however_many_of_its_partitions_wait() {
        let (live, expired) = (job(0, 2_000_000), job(0, 1));
        let envelopes = [task(&live, 0), task(&live, 1), task(&expired, 0), task(&expired, 7)];
        let sample = Sample::of(Lane::Tasks, &envelopes, NOW);
        assert_eq!((sample.envelopes, sample.live, sample.expired), (4, 1, 1));
    }

    #[test]
    fn what_cannot_be_read_is_mentioned_and_hides_nothing() {
        let envelopes = [Bytes::from_static(b"?"), encode_alone(&job(0, 2_000_000)).unwrap()];
        let sample = Sample::of(Lane::Jobs, &envelopes, NOW);
        assert_eq!((sample.live, sample.unreadable), (1, 1));
        let finding = sample.finding(Lane::Jobs, 2, NOW);
        assert_eq!(finding.level, Level::Warning);
        assert!(finding.detail.contains("1 cannot be read"), "{}", finding.detail);
        let newer = Sample::of(Lane::Tasks, &[Bytes::from_static(b"{\"v\":9}")], NOW);
        let detail = newer.finding(Lane::Tasks, 1, NOW).detail;
        assert!(detail.ends_with("1 was written by a newer program and waits for newer workers"));
    }
}
