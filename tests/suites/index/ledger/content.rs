//! The content and the sender that entries of broadcasts keep.

use std::time::Duration;

use push_ledger::{Ledger, MessageQuery, list_messages};
use push_model::{
    device::TransportKind,
    ids::{AudienceKind, MessageId},
    ledger::{BroadcastNote, MOST_CONTENT, NewEntry, PartitionState, Plan},
    report::Report,
    time::UnixMillis,
};
use serde_json::json;

use super::{
    fill::{self, finish_new, measure, rounds},
    steps::{SAVED, all_sent, new_entry, partitions, recall},
};
use crate::index::support::{app, key};

/// The note of a broadcast whose content has this many bytes more than its title.
fn note(title: &str, more: usize) -> Box<BroadcastNote> {
    // Two bytes and three: sizes are in bytes and not in characters.
    let desc = "\u{e9}\u{20ac}".repeat(more / 5);
    let payload = json!({ "notification": { "title": title, "desc": desc } });
    Box::new(BroadcastNote::of(payload.to_string().as_bytes(), Some("ci")))
}

fn broadcast(title: &str) -> NewEntry {
    let message_id = MessageId::issue(&app(), AudienceKind::Broadcast);
    NewEntry { message_id, broadcast: Some(note(title, 100)), ..new_entry() }
}

pub(crate) async fn a_broadcast_keeps_its_content_and_sender_whatever_becomes_of_it(
    ledger: &dyn Ledger,
) {
    let new = broadcast("first");
    let message = &new.message_id;
    let kept = async || ledger.entry(&key(), message).await.unwrap().unwrap().broadcast;
    let begun = ledger.begin(&new).await.unwrap().unwrap();
    assert_eq!((begun.broadcast, kept().await), (new.broadcast.clone(), new.broadcast.clone()));
    // Delivered again, and as the copy of another request.
    for (dedup_nonce, title) in [(new.dedup_nonce, "first"), (7, "other")] {
        let broadcast = Some(note(title, 100));
        let again = NewEntry { dedup_nonce, broadcast, ..new.clone() };
        assert_eq!(ledger.begin(&again).await.unwrap().unwrap().broadcast, new.broadcast);
    }
    ledger.plan(&key(), message, &partitions(1)).await.unwrap();
    assert_eq!(ledger.advance(&key(), message, &all_sent(0, 3)).await.unwrap(), SAVED);
    assert_eq!(kept().await, new.broadcast);

    let one_partition = NewEntry { plan: Some(Plan::named()), ..broadcast("one partition") };
    finish_new(ledger, &one_partition).await;
    let entry = ledger.entry(&key(), &one_partition.message_id).await.unwrap().unwrap();
    assert_eq!(
        (entry.partition(0).state, entry.broadcast),
        (PartitionState::ENDED, one_partition.broadcast)
    );
}

pub(crate) async fn a_broadcast_that_was_recalled_early_keeps_its_content(ledger: &dyn Ledger) {
    let new = broadcast("recalled");
    let at = UnixMillis::now();
    let early = push_model::ledger::EarlyRecall { accepted_at: at, keep_until: new.keep_until };
    let early = push_model::ledger::Recall { early: Some(early), ..recall(at) };
    ledger.recall(&key(), &new.message_id, &early).await.unwrap();
    let begun = ledger.begin(&new).await.unwrap().unwrap();
    assert_eq!((begun.recalled_at, begun.broadcast), (Some(at), new.broadcast));
}

pub(crate) async fn a_list_shows_who_sent_a_broadcast_and_its_title_and_no_content(
    ledger: &dyn Ledger,
) {
    let named = NewEntry { message_id: MessageId::issue_named(&app()), ..fill_entry() };
    let long = NewEntry { broadcast: Some(note("long", MOST_CONTENT)), ..broadcast("") };
    for new in [&named, &broadcast("short"), &long] {
        ledger.begin(new).await.unwrap().unwrap();
    }
    let query = MessageQuery { limit: 50, before: None, state: None };
    let page = list_messages(ledger, &key(), &query, UnixMillis::now()).await.unwrap();
    let mut shown: Vec<_> = page
        .messages
        .iter()
        .map(|report| (report.title.as_deref(), report.sent_by.as_deref()))
        .collect();
    shown.sort_unstable();
    assert_eq!(shown, [(None, None), (Some("long"), Some("ci")), (Some("short"), Some("ci"))]);
    assert!(page.messages.iter().all(|report| report.content.is_none()));
    let entry = ledger.entry(&key(), &long.message_id).await.unwrap().unwrap();
    let report = Report::of(&entry, UnixMillis::now());
    assert_eq!(report.content_omitted.as_deref(), Some("larger than 4096 bytes"));
}

fn fill_entry() -> NewEntry {
    fill::new_entry(MessageId::issue_named(&app()))
}

pub(crate) async fn content_counts_in_the_size_of_the_ledger_and_goes_with_its_entry(
    ledger: &dyn Ledger,
) {
    const MESSAGES: u64 = 60;
    const BYTES: u64 = 4000;
    let now = UnixMillis::now();
    let plan = Plan::of(TransportKind::Mqtt, vec![Vec::new()]);
    let mut messages = Vec::new();
    for _ in 0..MESSAGES {
        let new = NewEntry {
            message_id: MessageId::issue(&app(), AudienceKind::Broadcast),
            // Closed and over, so that it may be evicted.
            expires_at: UnixMillis(now.0 - 60_000),
            plan: Some(plan.clone()),
            broadcast: Some(note("", usize::try_from(BYTES).unwrap())),
            ..fill_entry()
        };
        finish_new(ledger, &new).await;
        messages.push(new.message_id);
    }
    let bytes = measure(ledger).await;
    let expected = MESSAGES * BYTES..MESSAGES * (BYTES + 2500);
    assert!(expected.contains(&bytes), "{bytes} bytes for {MESSAGES} messages");
    rounds(ledger, bytes / 2).await;
    let left = measure(ledger).await;
    assert!(left <= bytes / 2, "{left} of {bytes} bytes");
    fill::rounds_at(ledger, 0, now.plus(Duration::from_mins(1))).await;
    for message in &messages {
        assert_eq!(ledger.entry(&key(), message).await.unwrap(), None);
    }
    assert!(measure(ledger).await < BYTES);
}
