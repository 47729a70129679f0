//! The list of an app's messages, the newest first.

use std::{collections::BTreeSet, time::Duration};

use push_ledger::{EntryPage, Ledger, MOST_EXAMINED, MessageQuery, list_messages};
use push_model::{
    app::AppKey,
    id_key::IdKey,
    ids::{AudienceKind, MessageId},
    ledger::{Advance, Counts, Leftover, ListPlace, MessageState, NewEntry, PartitionState, Plan},
    time::UnixMillis,
};
use uuid::Uuid;

use super::fill;
use crate::index::support::key;

/// More pages than any test reads.
const PAGES: usize = 500;

fn quiet() -> AppKey {
    AppKey::first("quiet".parse().unwrap())
}

fn new_entry(app: &AppKey, message_id: MessageId, accepted_at: UnixMillis) -> NewEntry {
    let now = UnixMillis::now();
    NewEntry {
        message_id: message_id.for_app(app),
        app: app.clone(),
        accepted_at,
        expires_at: now.plus(Duration::from_hours(1)),
        dedup_nonce: 7,
        keep_until: now.plus(Duration::from_hours(48)),
        plan: Some(Plan::named()),
        claim: None,
        replaces: None,
        broadcast: None,
    }
}

/// A message of each kind in turn: named devices, a derived id, a broadcast.
fn one(app: &AppKey, number: u32, at: UnixMillis) -> NewEntry {
    match number % 4 {
        0 | 1 => new_entry(app, MessageId::issue_at(&app.id, AudienceKind::Named, at), at),
        2 => {
            let key = format!("{}-{number}-{}", app.id, at.0);
            let id = MessageId::derive(&app.id, &IdKey::from([0; 16]), key.as_bytes());
            new_entry(app, id, at)
        }
        _ => {
            let id = MessageId::issue_at(&app.id, AudienceKind::Broadcast, at);
            NewEntry { plan: None, ..new_entry(app, id, at) }
        }
    }
}

async fn begin(ledger: &dyn Ledger, new: &NewEntry) {
    ledger.begin(new).await.unwrap().unwrap();
}

fn place(new: &NewEntry) -> ListPlace {
    ListPlace::of(&new.message_id, new.accepted_at)
}

/// All places of an app's list, read page by page; between two pages `meanwhile` happens.
async fn listed(
    ledger: &dyn Ledger,
    app: &AppKey,
    limit: usize,
    mut meanwhile: impl AsyncFnMut(),
) -> Vec<ListPlace> {
    let (mut before, mut places) = (None, Vec::new());
    for _ in 0..PAGES {
        let EntryPage { entries, next } = ledger.entries_before(app, before, limit).await.unwrap();
        assert!(entries.len() <= limit, "{} entries", entries.len());
        assert!(entries.iter().all(|entry| entry.app_id == app.id));
        places.extend(entries.iter().map(ListPlace::of_entry));
        let Some(next) = next else { return places };
        assert!(before.is_none_or(|before| next < before), "{next:?} is no progress");
        before = Some(next);
        meanwhile().await;
    }
    panic!("no end after {PAGES} pages");
}

async fn all(ledger: &dyn Ledger, app: &AppKey) -> Vec<ListPlace> {
    listed(ledger, app, 50, async || {}).await
}

fn newest_first(entries: &[NewEntry]) -> Vec<ListPlace> {
    let mut places: Vec<_> = entries.iter().map(place).collect();
    places.sort_unstable_by_key(|place| std::cmp::Reverse(*place));
    places
}

pub(crate) async fn messages_are_listed_newest_first_without_gap_or_repeat_while_others_begin(
    ledger: &dyn Ledger,
) {
    let now = UnixMillis::now();
    let at = |number: u32| UnixMillis(now.0 - 3_600_000 + u64::from(number) * 7_000);
    let entries: Vec<_> = (0..120).map(|number| one(&key(), number, at(number / 2))).collect();
    // In another order than that of the list.
    for new in entries.iter().rev().step_by(2).chain(entries.iter().rev().skip(1).step_by(2)) {
        begin(ledger, new).await;
    }
    let expected = newest_first(&entries);
    for limit in [1, 7, 50, 200] {
        let mut number = 0;
        let meanwhile = async || {
            number += 1;
            begin(ledger, &one(&key(), number, UnixMillis::now())).await;
        };
        let places = listed(ledger, &key(), limit, meanwhile).await;
        let old: Vec<_> = places.iter().filter(|place| expected.contains(place)).copied().collect();
        assert_eq!(old, expected, "limit {limit}");
        assert!(places.is_sorted_by(|newer, older| newer > older), "limit {limit}");
    }
}

pub(crate) async fn a_loud_app_hides_no_message_of_a_quiet_one(ledger: &dyn Ledger) {
    let now = UnixMillis::now();
    let (mut loud, mut of_quiet) = (Vec::new(), Vec::new());
    for number in 0..3000_u32 {
        let at = UnixMillis(now.0 - 10_000 + u64::from(number));
        let id = MessageId::issue_at(&key().id, AudienceKind::Named, at);
        loud.push(new_entry(&key(), id, at));
        if number % 100 == 0 {
            let id = MessageId::issue_at(&quiet().id, AudienceKind::Named, at);
            of_quiet.push(new_entry(&quiet(), id, at));
        }
    }
    let both = [loud.clone(), of_quiet.clone()].concat();
    for some in both.chunks(500) {
        assert!(ledger.begin_all(some).await.into_iter().all(|begun| begun.unwrap()));
    }
    assert_eq!(all(ledger, &quiet()).await, newest_first(&of_quiet));
    let places = listed(ledger, &key(), 200, async || {}).await;
    assert_eq!(places, newest_first(&loud));
    assert_eq!(all(ledger, &AppKey { generation: 1, ..quiet() }).await, []);
}

pub(crate) async fn messages_are_listed_in_order_however_they_are_spread_over_the_store(
    ledger: &dyn Ledger,
) {
    const MESSAGES: u32 = 800;
    let now = UnixMillis::now();
    // Derived ids tell by their first byte where in the store their entries are. Two times, 80 messages one
    // after the other are in one place, and the others are all over.
    let mut entries = Vec::new();
    for number in 0..MESSAGES {
        let mut id = [0; 16];
        id[0] = match number {
            100..180 => 3,
            600..680 => 200,
            _ => (number * 7 % 256) as u8,
        };
        id[8..12].copy_from_slice(&number.to_be_bytes());
        // Three messages in a row have one time of acceptance.
        let at = UnixMillis(now.0 - 60_000 + u64::from(number / 3));
        entries.push(new_entry(&key(), MessageId::from_uuid(Uuid::new_v8(id)), at));
    }
    for some in entries.chunks(200) {
        assert!(ledger.begin_all(some).await.into_iter().all(|begun| begun.unwrap()));
    }
    for limit in [7, 50, 200] {
        let places = listed(ledger, &key(), limit, async || {}).await;
        assert_eq!(places, newest_first(&entries), "limit {limit}");
    }
}

pub(crate) async fn a_message_with_devices_to_be_tried_again_is_listed_with_its_counts(
    ledger: &dyn Ledger,
) {
    let now = UnixMillis::now();
    let entries: Vec<_> = (0..8).map(|number| one(&key(), number, now)).collect();
    for new in &entries {
        begin(ledger, new).await;
    }
    let leftover = Leftover {
        attempt: 1,
        unanswered: 0,
        throttled: 0,
        due_at: now,
        clients: vec!["d".parse().unwrap()],
    };
    let waiting = &entries[4];
    let from = PartitionState::default();
    let step = Advance {
        dedup_nonce: waiting.dedup_nonce,
        partition: 0,
        from,
        to: PartitionState { step: from.step + 1, ..from },
        leftovers: Some(vec![leftover]),
        counts: Counts { targeted: 1, ..Counts::default() },
        keep_until: None,
    };
    ledger.advance(&waiting.app, &waiting.message_id, &step).await.unwrap();
    assert_eq!(all(ledger, &key()).await, newest_first(&entries));
    let query = MessageQuery { limit: 50, before: None, state: Some(MessageState::Sending) };
    let page = list_messages(ledger, &key(), &query, now).await.unwrap();
    let found = page.messages.iter().map(|report| (report.message_id, report.pending));
    assert_eq!(found.collect::<Vec<_>>(), [(waiting.message_id, 1)]);
}

pub(crate) async fn a_message_is_listed_once_whatever_becomes_of_it(ledger: &dyn Ledger) {
    let now = UnixMillis::now();
    let entries: Vec<_> = (0..12).map(|number| one(&key(), number, now)).collect();
    for new in &entries {
        begin(ledger, new).await;
        // Delivered again.
        begin(ledger, new).await;
    }
    let finished = &entries[4];
    let closed = one(&key(), 0, now);
    fill::finish_new(ledger, &closed).await;
    for new in [&entries[0], &entries[2], &entries[3]] {
        let (app, message) = (&new.app, &new.message_id);
        let recall = push_model::ledger::Recall { at: now, early: None };
        ledger.recall(app, message, &recall).await.unwrap();
    }
    let mut expected = entries.clone();
    expected.push(closed);
    assert_eq!(all(ledger, &key()).await, newest_first(&expected));
    assert!(all(ledger, &key()).await.contains(&place(finished)));
}

pub(crate) async fn a_page_of_one_state_is_bounded_and_goes_on(ledger: &dyn Ledger) {
    let now = UnixMillis::now();
    let at = |number: u64| UnixMillis(now.0 - 60_000 + number);
    let done = new_entry(&key(), MessageId::issue_at(&key().id, AudienceKind::Named, at(0)), at(0));
    fill::finish_new(ledger, &done).await;
    let others: Vec<_> = (1..=MOST_EXAMINED as u64 + 100)
        .map(|number| {
            let id = MessageId::issue_at(&key().id, AudienceKind::Named, at(number));
            new_entry(&key(), id, at(number))
        })
        .collect();
    for some in others.chunks(500) {
        assert!(ledger.begin_all(some).await.into_iter().all(|begun| begun.unwrap()));
    }
    let state = Some(MessageState::Done);
    let (mut before, mut found) = (None, Vec::new());
    for number in 0..PAGES {
        let query = MessageQuery { limit: 50, before, state };
        let page = list_messages(ledger, &key(), &query, now).await.unwrap();
        assert!(number > 0 || page.messages.is_empty(), "a page reads a bounded number of entries");
        found.extend(page.messages.iter().map(|report| report.message_id));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(found, [done.message_id]);
}

pub(crate) async fn an_early_recall_is_listed_when_a_worker_begins_the_message(
    ledger: &dyn Ledger,
) {
    let now = UnixMillis::now();
    let new = one(&key(), 0, now);
    let recall = push_model::ledger::Recall {
        at: now,
        early: Some(push_model::ledger::EarlyRecall {
            accepted_at: now,
            keep_until: new.keep_until,
        }),
    };
    ledger.recall(&new.app, &new.message_id, &recall).await.unwrap();
    let query = MessageQuery { limit: 50, before: None, state: None };
    let page = list_messages(ledger, &key(), &query, now).await.unwrap();
    assert_eq!((page.messages, page.next), (Vec::new(), None));
    begin(ledger, &new).await;
    let page = list_messages(ledger, &key(), &query, now).await.unwrap();
    assert_eq!(page.messages[0].state, MessageState::Recalled);
    assert_eq!((page.messages.len(), page.next), (1, None));
}

pub(crate) async fn evicted_messages_leave_the_list(ledger: &dyn Ledger) {
    let steps = fill::write(ledger, fill::beginning(), fill::STEPS).await;
    let limit = fill::measure(ledger).await / 2;
    fill::rounds(ledger, limit).await;
    let mut kept = BTreeSet::new();
    for id in steps.iter().flatten() {
        let entry = fill::entry(ledger, id).await;
        kept.extend(entry.map(|entry| ListPlace::of_entry(&entry)));
    }
    assert!(!kept.is_empty() && kept.len() < steps.len() * fill::EACH, "{}", kept.len());
    let listed = all(ledger, &key()).await;
    assert_eq!(listed, kept.into_iter().rev().collect::<Vec<_>>());
}
