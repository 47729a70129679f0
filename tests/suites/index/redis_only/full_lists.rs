//! The bounds of an app's list of messages: in Redis a list keeps its newest members, and expires.

use std::time::Duration;

use push_ledger::{EntryLists as _, Ledger, LedgerBounds as _, redis::RedisLedger};
use push_model::{
    device::TransportKind,
    ids::{AudienceKind, MessageId},
    ledger::{
        Advance, AdvanceOutcome, Counts, Leftover, ListPlace, NewEntry, PartitionState, Plan,
    },
    slots::SlotRange,
    time::UnixMillis,
};
use push_store::redis::RedisStore;
use push_tests::{namespace, redis_url, servers::redis_connection};
use uuid::Uuid;

use crate::index::{engines, support::key};

/// An entry whose id begins with the number of its part of the ledger, as a derived one can.
fn in_stripe(stripe: u8, number: u64) -> NewEntry {
    let mut id = [0; 16];
    id[0] = stripe;
    id[4..12].copy_from_slice(&number.to_be_bytes());
    let at = UnixMillis(UnixMillis::now().0 - 60_000 + number);
    NewEntry {
        message_id: MessageId::from_uuid(Uuid::new_v8(id)).for_app(&key()),
        app: key(),
        accepted_at: at,
        expires_at: at.plus_seconds(600),
        dedup_nonce: 1,
        keep_until: at.plus_seconds(3600),
        plan: Some(Plan::named()),
        claim: None,
        replaces: None,
        broadcast: None,
    }
}

#[tokio::test]
async fn a_list_that_is_full_ends_where_members_are_missing_and_has_no_gap() {
    let engine = engines::redis().await;
    let ledger: &dyn Ledger = engine.part();
    let mut entries: Vec<_> = (0..300).map(|number| in_stripe(7, number)).collect();
    entries.extend((0..300).step_by(10).map(|number| in_stripe(9, number)));
    for new in &entries {
        ledger.begin(new).await.unwrap().unwrap();
    }
    let (mut before, mut listed) = (None, Vec::new());
    loop {
        let page = ledger.entries_before(&key(), before, 50).await.unwrap();
        listed.extend(page.entries.iter().map(ListPlace::of_entry));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    let mut newest: Vec<_> =
        entries.iter().map(|new| ListPlace::of(&new.message_id, new.accepted_at)).collect();
    newest.sort_unstable_by_key(|place| std::cmp::Reverse(*place));
    assert!(listed.len() > 100, "{}", listed.len());
    assert!(listed.len() < 120, "{}", listed.len());
    assert_eq!(listed, newest[..listed.len()]);
}

/// The times for which the lists of entries are still kept.
async fn lives(namespace: &str) -> Vec<Duration> {
    let server = redis::Client::open(redis_url()).unwrap();
    let mut connection = redis_connection(&server).await.unwrap();
    let mut lives = Vec::new();
    for kind in ['n', 'a'] {
        let keys = redis::cmd("KEYS").arg(format!("{namespace}:{{l/*}}:{kind}*")).to_owned();
        let keys: Vec<String> = keys.query_async(&mut connection).await.unwrap();
        for key in keys {
            let life = redis::cmd("PTTL").arg(key).to_owned();
            let life: u64 = life.query_async(&mut connection).await.unwrap();
            lives.push(Duration::from_millis(life));
        }
    }
    lives
}

/// The shortest of them.
async fn shortest_life(namespace: &str) -> Duration {
    lives(namespace).await.into_iter().min().expect("a list")
}

#[tokio::test]
async fn a_list_is_kept_as_long_as_the_entries_that_a_step_keeps_longer() {
    const LONG: Duration = Duration::from_hours(100);
    let leftover = Leftover {
        attempt: 1,
        unanswered: 0,
        throttled: 0,
        due_at: UnixMillis::now(),
        clients: vec!["d".parse().unwrap()],
    };
    let derived = in_stripe(7, 0).message_id;
    let [named, broadcast] = [AudienceKind::Named, AudienceKind::Broadcast]
        .map(|kind| MessageId::issue(&key().id, kind));
    for (message_id, is_named, leftovers) in [
        (named, true, None),
        (named, true, Some(vec![leftover.clone()])),
        (derived, true, None),
        (derived, true, Some(vec![leftover.clone()])),
        (broadcast, false, None),
    ] {
        let namespace = namespace();
        let store =
            RedisStore::connect(&redis_url(), &namespace, Default::default()).await.unwrap();
        let ledger = RedisLedger::new(store);
        let range = SlotRange { shard: 0, from: 0, to: 10 };
        let plan =
            if is_named { Plan::named() } else { Plan::of(TransportKind::Mqtt, vec![vec![range]]) };
        let new = NewEntry { message_id, plan: Some(plan), ..in_stripe(7, 0) };
        let begun = ledger.begin(&new).await.unwrap().unwrap();
        assert!(shortest_life(&namespace).await < LONG / 2);
        let from = begun.partition(0).state;
        let is_pending = u64::from(leftovers.is_some());
        let step = Advance {
            dedup_nonce: new.dedup_nonce,
            partition: 0,
            from,
            to: PartitionState { step: from.step + 1, ..from },
            leftovers,
            counts: Counts { targeted: is_pending, ..Counts::default() },
            keep_until: Some(UnixMillis::now().plus(LONG)),
        };
        let advanced = ledger.advance(&key(), &message_id, &step).await.unwrap();
        assert!(matches!(advanced, AdvanceOutcome::Saved { .. }), "{advanced:?}");
        let life = shortest_life(&namespace).await;
        assert!(life > LONG - Duration::from_mins(1), "{message_id}: {life:?}");
    }
}

#[tokio::test]
async fn what_is_evicted_leaves_nothing_in_the_lists() {
    let namespace = namespace();
    let store = RedisStore::connect(&redis_url(), &namespace, Default::default()).await.unwrap();
    let ledger = RedisLedger::new(store);
    let now = UnixMillis::now();
    for number in 0..30 {
        let derived = in_stripe(7, number);
        let message_id = match number % 3 {
            0 => MessageId::issue(&key().id, AudienceKind::Named),
            1 => MessageId::issue(&key().id, AudienceKind::Broadcast),
            _ => derived.message_id,
        };
        let plan = match number % 3 {
            1 => Plan::of(TransportKind::Mqtt, vec![Vec::new()]),
            _ => Plan::named(),
        };
        let expires_at = UnixMillis(now.0 - 60_000);
        let new = NewEntry { message_id, plan: Some(plan), expires_at, ..derived };
        ledger.begin(&new).await.unwrap().unwrap();
        let step = Advance {
            dedup_nonce: new.dedup_nonce,
            partition: 0,
            from: PartitionState::default(),
            to: PartitionState::ENDED,
            leftovers: None,
            counts: Counts::default(),
            keep_until: None,
        };
        ledger.advance(&key(), &message_id, &step).await.unwrap();
    }
    assert!(lives(&namespace).await.len() > 2);
    while ledger.keep_within(0, now).await.unwrap().more {}
    let page = ledger.entries_before(&key(), None, 50).await.unwrap();
    assert_eq!((page.entries, page.next), (Vec::new(), None));
    assert!(lives(&namespace).await.is_empty());
}
