//! What is said of a message to who asks: the public part of the ledger, one form for the HTTP
//! endpoint and the operator's tool.

use std::time::Duration;

use serde::Serialize;

use crate::{
    ids::{AppId, MessageId, Origin},
    ledger::{Entry, Outcomes, Retried, State},
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

impl Report {
    /// On a message that has an entry.
    pub fn of(entry: &Entry) -> Self {
        Self {
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
        }
    }

    /// On a message without an entry, where entries are kept for `retention`: it waits in the
    /// queue, if its id shows that it was accepted and is not so old that its entry may be gone.
    /// An id that was derived from an `Idempotency-Key` shows no time, so nothing can be said.
    pub fn of_waiting(
        app: &AppId,
        message: &MessageId,
        now: UnixMillis,
        retention: Duration,
    ) -> Option<Self> {
        let Origin::Issued(accepted_at) = message.origin(app) else { return None };
        (now < accepted_at.plus(retention)).then(|| Self {
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

    const WEEK: Duration = Duration::from_hours(7 * 24);

    #[test]
    fn a_message_that_nobody_has_begun_is_accepted_while_its_entry_would_be_kept() {
        let app: AppId = "a".parse().unwrap();
        let (id, now) = (MessageId::issue(&app), UnixMillis::now());
        let report = Report::of_waiting(&app, &id, now, WEEK).unwrap();
        assert_eq!((report.state, report.targeted, report.pending), (State::Accepted, 0, 0));
        assert_eq!(Report::of_waiting(&app, &id, now.plus(WEEK).plus_seconds(1), WEEK), None);
        for id in [MessageId::void(&app), MessageId::from_idempotency_key(&app, b"k")] {
            assert_eq!(Report::of_waiting(&app, &id, now, WEEK), None, "{id}");
        }
    }

    #[test]
    fn a_report_is_flat_and_closes() {
        let app: AppId = "a".parse().unwrap();
        let id = MessageId::issue(&app);
        let report = Report::of_waiting(&app, &id, UnixMillis::now(), WEEK).unwrap();
        let json = serde_json::to_value(&report).unwrap();
        for count in ["targeted", "sent", "expired", "recalled", "pending"] {
            assert_eq!(json[count], 0, "{json}");
        }
        assert_eq!((&json["state"], &json["failed"]), (&"accepted".into(), &serde_json::json!({})));
    }
}
