//! What is said of a message to who asks: the public part of the ledger, one form for the HTTP
//! endpoint and the operator's tool.

use std::time::Duration;

use serde::Serialize;

use crate::{
    ids::{AppId, MessageId},
    ledger::{Entry, FailReason, Horizon, Outcomes, Retried, State},
    time::UnixMillis,
};

/// The report on one message. At every instant
/// `targeted = sent + failed + expired + recalled + pending`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The message.
    pub message_id: MessageId,
    /// Its app.
    pub app_id: AppId,
    /// Where it is in its life.
    pub state: State,
    /// When ingest accepted it.
    pub accepted_at: UnixMillis,
    /// When it expires; null until a worker has begun it.
    pub expires_at: Option<UnixMillis>,
    /// When it was recalled; null if it was not.
    pub recalled_at: Option<UnixMillis>,
    /// Devices found to be meant so far.
    pub targeted: u64,
    /// Devices settled so far, by outcome.
    #[serde(flatten)]
    pub outcomes: Outcomes,
    /// Devices that are found and not settled.
    pub pending: u64,
    /// Tries that settled nobody and are made again, by reason.
    pub retried: Retried,
}

/// How long after its expiry the entry of a message may still be open. What no worker has recorded
/// by then was lost with the index's last writes, or no worker ran for so long.
pub const REST: Duration = Duration::from_mins(30);

/// Whether an entry is still open although its message is over for longer than [`REST`].
pub fn is_forgotten(entry: &Entry, now: UnixMillis) -> bool {
    entry.expires_at.is_some_and(|at| now > at.plus(REST)) && !entry.is_closed()
}

impl Report {
    /// On a message that has an entry, at this time.
    ///
    /// An entry that is still open when the message is over for longer than [`REST`] is reported
    /// as closed: what is pending then counts as failed, as
    /// [`Unrecorded`](FailReason::Unrecorded).
    pub fn of(entry: &Entry, now: UnixMillis) -> Self {
        let mut report = Self {
            message_id: entry.message_id,
            app_id: entry.app_id.clone(),
            state: entry.state(),
            accepted_at: entry.accepted_at,
            expires_at: entry.expires_at,
            recalled_at: entry.recalled_at,
            targeted: entry.targeted,
            outcomes: entry.outcomes.clone(),
            pending: entry.pending(),
            retried: entry.retried.clone(),
        };
        if is_forgotten(entry, now) {
            if report.pending > 0 {
                *report.outcomes.failed.entry(FailReason::Unrecorded).or_default() +=
                    std::mem::take(&mut report.pending);
            }
            if report.state != State::Recalled {
                report.state = State::Expired;
            }
        }
        report
    }

    /// On a message without an entry: it waits in the queue, if its id shows that it was accepted,
    /// and so late that its entry is not forgotten ([`Horizon`]).
    pub fn of_waiting(
        app: &AppId,
        message: &MessageId,
        now: UnixMillis,
        horizon: Horizon,
    ) -> Option<Self> {
        horizon.waits_since(app, message, now).map(|accepted_at| Self {
            message_id: *message,
            app_id: app.clone(),
            state: State::Accepted,
            accepted_at,
            expires_at: None,
            recalled_at: None,
            targeted: 0,
            outcomes: Outcomes::default(),
            pending: 0,
            retried: Retried::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Reach;
    use crate::ledger::{Opened, Plan, Retention};

    const WEEK: Duration = Duration::from_hours(7 * 24);

    const HORIZON: Horizon = Horizon { retention: Retention::all(WEEK), forgotten_until: None };

    #[test]
    fn a_message_that_nobody_has_begun_is_accepted_while_its_entry_would_be_kept() {
        let app: AppId = "a".parse().unwrap();
        let (id, now) = (MessageId::issue(&app), UnixMillis::now());
        let report = Report::of_waiting(&app, &id, now, HORIZON).unwrap();
        assert_eq!((report.state, report.targeted, report.pending), (State::Accepted, 0, 0));
        assert_eq!(Report::of_waiting(&app, &id, now.plus(WEEK).plus_seconds(1), HORIZON), None);
        let after = Horizon { forgotten_until: Some(report.accepted_at), ..HORIZON };
        assert_eq!(Report::of_waiting(&app, &id, now, after), None, "it is forgotten");
        let short = Retention { named: Duration::from_secs(1), ..HORIZON.retention };
        let (short, later) = (Horizon { retention: short, ..HORIZON }, now.plus_seconds(2));
        let broadcast = MessageId::issue_for(&app, Reach::Broadcast);
        assert_eq!(Report::of_waiting(&app, &id, later, short), None);
        assert!(Report::of_waiting(&app, &broadcast, later, short).is_some());
        for id in [MessageId::void(&app), MessageId::from_idempotency_key(&app, 0, b"k")] {
            assert_eq!(Report::of_waiting(&app, &id, now, HORIZON), None, "{id}");
        }
    }

    #[test]
    fn an_entry_that_stays_open_is_reported_as_closed_after_its_rest() {
        let app: AppId = "a".parse().unwrap();
        let expires_at = UnixMillis(5_000);
        let mut entry = Entry::begin(&Opened {
            message_id: MessageId::issue(&app),
            app_id: app,
            accepted_at: UnixMillis(0),
            expires_at,
            copy: 0,
            keep_until: UnixMillis::MAX,
            plan: Some(Plan::named()),
            claim: None,
            replaces: None,
        });
        entry.targeted = 5;
        entry.outcomes.sent = 3;
        let before = Report::of(&entry, expires_at.plus(REST));
        assert_eq!((before.state, before.pending), (State::Sending, 2));
        let after = Report::of(&entry, expires_at.plus(REST).plus_seconds(1));
        assert_eq!((after.state, after.pending), (State::Expired, 0));
        assert_eq!(after.outcomes.failed[&FailReason::Unrecorded], 2);
        assert_eq!(after.targeted, after.outcomes.total());
    }

    #[test]
    fn a_report_is_flat_and_closes() {
        let app: AppId = "a".parse().unwrap();
        let id = MessageId::issue(&app);
        let report = Report::of_waiting(&app, &id, UnixMillis::now(), HORIZON).unwrap();
        let json = serde_json::to_value(&report).unwrap();
        for count in ["targeted", "sent", "expired", "recalled", "pending"] {
            assert_eq!(json[count], 0, "{json}");
        }
        assert_eq!((&json["state"], &json["failed"]), (&"accepted".into(), &serde_json::json!({})));
    }
}
