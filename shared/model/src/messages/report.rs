//! The report on a message: the public part of its ledger entry, in one form for the HTTP endpoint
//! and `pushctl`.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    app::AppKey,
    ids::{AppId, MessageId},
    ledger::{
        BroadcastNote, Entry, FailReason, Horizon, MOST_CONTENT, MessageState, Outcomes, Retried,
    },
    time::UnixMillis,
};

/// The report on one message. At every instant
/// `targeted = sent + failed + expired + recalled + pending`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The message.
    pub message_id: MessageId,
    /// Its app.
    pub app_id: AppId,
    /// The state of the message.
    pub state: MessageState,
    /// When ingest accepted it.
    pub accepted_at: UnixMillis,
    /// When it expires; null until a worker has begun it.
    pub expires_at: Option<UnixMillis>,
    /// When it was recalled; null if it was not.
    pub recalled_at: Option<UnixMillis>,
    /// Devices found so far to be in the audience.
    pub targeted: u64,
    /// Devices that have an outcome, by outcome.
    #[serde(flatten)]
    pub outcomes: Outcomes,
    /// Targeted devices without an outcome.
    pub pending: u64,
    /// Tries that gave a device no outcome and are made again, by reason.
    pub retried: Retried,
    /// The name of the secret that sent it, if it is a broadcast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_by: Option<String>,
    /// The title of a broadcast, cut to [`MOST_TITLE`](crate::ledger::MOST_TITLE) characters: in a list,
    /// and if the content was omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The content of a broadcast, except in a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
    /// The reason why the content of a broadcast was not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_omitted: Option<String>,
}

/// A page of an app's messages, the newest first, as it is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportPage {
    /// The messages.
    pub messages: Vec<Report>,
    /// The cursor of the next page; absent at the end of the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Time after the expiry of its message in which an entry may still be open. After that it is
/// overdue: the ledger lost the writes that would have closed it, or no worker ran for so long.
pub const OVERDUE_AFTER: Duration = Duration::from_mins(30);

/// Returns true if an entry is still open although its message expired more than [`OVERDUE_AFTER`]
/// ago.
pub fn is_overdue(entry: &Entry, now: UnixMillis) -> bool {
    entry.expires_at.is_some_and(|at| now > at.plus(OVERDUE_AFTER)) && !entry.is_closed()
}

impl Report {
    /// The report on a message that has an entry, at this time.
    ///
    /// An overdue entry ([`is_overdue`]) is reported as closed: its pending devices count as
    /// failed, as [`Unrecorded`](FailReason::Unrecorded).
    pub fn of(entry: &Entry, now: UnixMillis) -> Self {
        let mut report = Self::in_list(entry, now);
        if let Some(note) = &entry.broadcast {
            report.content.clone_from(&note.content);
            match note.content {
                Some(_) => report.title = None,
                None => {
                    let why = format!("larger than {MOST_CONTENT} bytes");
                    report.content_omitted = Some(why);
                }
            }
        }
        report
    }

    /// As [`of`](Self::of), without the content of a broadcast: as it is in a list.
    pub fn in_list(entry: &Entry, now: UnixMillis) -> Self {
        let note = entry.broadcast.as_deref();
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
            sent_by: note.and_then(|note| note.sent_by.clone()),
            title: note.and_then(BroadcastNote::title),
            content: None,
            content_omitted: None,
        };
        if is_overdue(entry, now) {
            if report.pending > 0 {
                *report.outcomes.failed.entry(FailReason::Unrecorded).or_default() +=
                    std::mem::take(&mut report.pending);
            }
            if report.state != MessageState::Recalled {
                report.state = MessageState::Expired;
            }
        }
        report
    }

    /// The report on a message without an entry. It waits in the queue if its id shows that it was
    /// accepted, and so recently that an entry would not have been evicted ([`Horizon`]).
    pub fn of_waiting(
        app: &AppKey,
        message: &MessageId,
        now: UnixMillis,
        horizon: Horizon,
    ) -> Option<Self> {
        horizon.waits_since(app, message, now).map(|accepted_at| Self {
            message_id: *message,
            app_id: app.id.clone(),
            state: MessageState::Accepted,
            accepted_at,
            expires_at: None,
            recalled_at: None,
            targeted: 0,
            outcomes: Outcomes::default(),
            pending: 0,
            retried: Retried::new(),
            sent_by: None,
            title: None,
            content: None,
            content_omitted: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id_key::IdKey;
    use crate::ids::AudienceKind;
    use crate::ledger::{NewEntry, Plan, Retention};

    const WEEK: Duration = Duration::from_hours(7 * 24);

    const HORIZON: Horizon = Horizon { retention: Retention::all(WEEK), evicted_until: None };

    #[test]
    fn a_message_that_no_worker_has_begun_is_accepted_while_its_entry_would_be_kept() {
        let app = AppKey::first("a".parse().unwrap());
        let (id, now) = (MessageId::issue_named(&app.id), UnixMillis::now());
        let report = Report::of_waiting(&app, &id, now, HORIZON).unwrap();
        assert_eq!((report.state, report.targeted, report.pending), (MessageState::Accepted, 0, 0));
        assert_eq!(Report::of_waiting(&app, &id, now.plus(WEEK).plus_seconds(1), HORIZON), None);
        let after = Horizon { evicted_until: Some(report.accepted_at), ..HORIZON };
        assert_eq!(Report::of_waiting(&app, &id, now, after), None, "it is evicted");
        let short = Retention { named: Duration::from_secs(1), ..HORIZON.retention };
        let (short, later) = (Horizon { retention: short, ..HORIZON }, now.plus_seconds(2));
        let broadcast = MessageId::issue(&app.id, AudienceKind::Broadcast);
        assert_eq!(Report::of_waiting(&app, &id, later, short), None);
        assert!(Report::of_waiting(&app, &broadcast, later, short).is_some());
        for id in
            [MessageId::void(&app.id), MessageId::derive(&app.id, &IdKey::from([0; 16]), b"k")]
        {
            assert_eq!(Report::of_waiting(&app, &id, now, HORIZON), None, "{id}");
        }
    }

    #[test]
    fn an_overdue_entry_is_reported_as_closed() {
        let app = AppKey::first("a".parse().unwrap());
        let expires_at = UnixMillis(5_000);
        let mut entry = Entry::begin(&NewEntry {
            message_id: MessageId::issue_named(&app.id),
            app,
            accepted_at: UnixMillis(0),
            expires_at,
            dedup_nonce: 0,
            keep_until: UnixMillis::MAX,
            plan: Some(Plan::named()),
            claim: None,
            replaces: None,
            broadcast: None,
        });
        entry.targeted = 5;
        entry.outcomes.sent = 3;
        let before = Report::of(&entry, expires_at.plus(OVERDUE_AFTER));
        assert_eq!((before.state, before.pending), (MessageState::Sending, 2));
        let after = Report::of(&entry, expires_at.plus(OVERDUE_AFTER).plus_seconds(1));
        assert_eq!((after.state, after.pending), (MessageState::Expired, 0));
        assert_eq!(after.outcomes.failed[&FailReason::Unrecorded], 2);
        assert_eq!(after.targeted, after.outcomes.total());
    }

    #[test]
    fn a_list_shows_the_title_of_a_broadcast_and_a_report_its_content() {
        let app = AppKey::first("a".parse().unwrap());
        let entry = |desc: &str| {
            let payload = serde_json::json!({ "notification": { "title": "t", "desc": desc } });
            let note = BroadcastNote::of(payload.to_string().as_bytes(), Some("ci"));
            let entry = Entry::begin(&NewEntry {
                message_id: MessageId::issue(&app.id, AudienceKind::Broadcast),
                app: app.clone(),
                accepted_at: UnixMillis(0),
                expires_at: UnixMillis(5_000),
                dedup_nonce: 0,
                keep_until: UnixMillis::MAX,
                plan: None,
                claim: None,
                replaces: None,
                broadcast: Some(note.into()),
            });
            let json = |report: Report| serde_json::to_value(report).unwrap();
            (json(Report::of(&entry, UnixMillis(1))), json(Report::in_list(&entry, UnixMillis(1))))
        };
        let (report, listed) = entry("d");
        assert_eq!(report["content"]["notification"]["desc"], "d");
        assert_eq!((&report["sent_by"], report.get("title")), (&"ci".into(), None));
        assert_eq!((&listed["sent_by"], &listed["title"]), (&"ci".into(), &"t".into()));
        assert_eq!((listed.get("content"), listed.get("content_omitted")), (None, None));
        let (report, listed) = entry(&"d".repeat(MOST_CONTENT));
        assert_eq!(report["content_omitted"], "larger than 4096 bytes");
        assert_eq!((report.get("content"), &report["title"]), (None, &"t".into()));
        assert_eq!(listed["title"], "t");
    }

    #[test]
    fn a_report_is_flat_and_closes() {
        let app = AppKey::first("a".parse().unwrap());
        let id = MessageId::issue_named(&app.id);
        let report = Report::of_waiting(&app, &id, UnixMillis::now(), HORIZON).unwrap();
        let json = serde_json::to_value(&report).unwrap();
        for count in ["targeted", "sent", "expired", "recalled", "pending"] {
            assert_eq!(json[count], 0, "{json}");
        }
        assert_eq!((&json["state"], &json["failed"]), (&"accepted".into(), &serde_json::json!({})));
    }
}
