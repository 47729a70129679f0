//! Keys whose content no program of ours wrote: one damaged record keeps no other device from its
//! message, and no call waits without end.

use std::time::Duration;

use futures::future::join_all;
use push_index::{Apps, Devices, Selection, Transfer, redis::RedisIndex, tally_devices};
use push_ledger::{Ledger, LedgerBounds, redis::RedisLedger};
use push_model::{
    app::{App, AppKey},
    attributes::Attribute,
    device::{Device, NoTarget, TargetFields, TransportKind},
    ids::{ClientId, MessageId},
    ledger::{Advance, Counts, NewEntry, Outcomes, PartitionState, Plan},
    secret::Secret,
    targeting::Targeting,
    time::UnixMillis,
};
use push_store::{IndexError, redis::RedisStore};
use push_tests::{namespace, redis_url, servers::redis_connection};
use redis::aio::MultiplexedConnection;
use tokio::time::timeout;

use crate::index::support::{NOW, app, client, device, key};

const SOON: Duration = Duration::from_secs(20);

/// An index with one app, and a connection that does the damage.
async fn begin() -> (RedisIndex, AppKey, String, MultiplexedConnection) {
    let namespace = namespace();
    let index = RedisIndex::connect(&redis_url(), &namespace, Default::default()).await.unwrap();
    index.create_app(&App::new(app(), &Secret::generate(), NOW)).await.unwrap();
    let key = AppKey::from(&index.app(&app()).await.unwrap().unwrap());
    let server = redis::Client::open(redis_url()).unwrap();
    let connection = redis_connection(&server).await.unwrap();
    (index, key, namespace, connection)
}

/// The ledger in the same Redis.
async fn ledger(namespace: &str) -> RedisLedger {
    RedisLedger::new(
        RedisStore::connect(&redis_url(), namespace, Default::default()).await.unwrap(),
    )
}

#[tokio::test]
async fn an_app_whose_record_cannot_be_read_can_be_removed_with_its_devices_and_made_again() {
    let (index, key, namespace, mut redis) = begin().await;
    index.put_devices(&key, &[device("here", &[])], NOW).await.unwrap();
    for damage in ["{", "[]"] {
        let mut damaging = redis::cmd("HSET");
        damaging.arg(format!("{namespace}:apps")).arg(app().as_str()).arg(damage);
        damaging.query_async::<u64>(&mut redis).await.unwrap();
        let Err(IndexError::Corrupt(why)) = index.apps().await else { panic!("it was listed") };
        assert!(why.contains(app().as_str()), "{why}");

        assert!(index.remove_app(&app()).await.unwrap());
        assert_eq!(index.apps().await.unwrap(), []);
        assert!(!index.remove_app(&app()).await.unwrap());
        assert!(index.create_app(&App::new(app(), &Secret::generate(), NOW)).await.unwrap());
    }
    assert_eq!(index.device(&key, &client("here")).await.unwrap(), None);
    let again = AppKey::from(&index.app(&app()).await.unwrap().unwrap());
    assert_eq!(again.generation, 2);
    assert_eq!(index.count_devices(&again).await.unwrap(), 0);
}

#[tokio::test]
async fn a_device_whose_record_cannot_be_read_keeps_no_other_from_its_message() {
    let (index, key, namespace, mut redis) = begin().await;
    let devices: Vec<_> =
        (0..500).map(|n| device(&format!("c{n}"), &[("country", "CN")])).collect();
    index.put_devices(&key, &devices, NOW).await.unwrap();
    let damaged = client("c7");
    let shard = index.storage_order(&damaged) >> 40;
    let chunk = format!("{namespace}:{{{key}/{shard}}}:d0");
    let records: Vec<u8> = redis::cmd("GET").arg(&chunk).query_async(&mut redis).await.unwrap();
    // The transport's code is two bytes before the client id.
    let id = records.windows(3).position(|bytes| bytes == b"\x02c7").unwrap();
    let damage = redis::cmd("SETRANGE").arg(&chunk).arg(id - 1).arg(&b"\x7f"[..]).to_owned();
    damage.query_async::<u64>(&mut redis).await.unwrap();

    let mut wanted = Targeting::all_devices();
    wanted.set(push_model::attributes::Attribute::Country, vec!["CN".into()]);
    for targeting in [Targeting::all_devices(), wanted] {
        let (mut found, mut unreadable, mut counted) = (0, 0, 0);
        for range in index.extent(&key).await.unwrap() {
            let scanned = index
                .scan(
                    &key,
                    range,
                    Selection {
                        carrier: TransportKind::Mqtt.into(),
                        targeting: &targeting,
                        registered_by: NOW,
                    },
                    TargetFields::Address,
                    1000,
                )
                .await
                .unwrap();
            assert_eq!(scanned.next, None);
            found += scanned.items.len();
            unreadable += scanned.unreadable;
            counted += index
                .count_matching(
                    &key,
                    range,
                    Selection {
                        carrier: TransportKind::Mqtt.into(),
                        targeting: &targeting,
                        registered_by: NOW,
                    },
                )
                .await
                .unwrap();
        }
        assert_eq!((found, unreadable), (499, 1));
        assert!((499..=500).contains(&counted), "{counted}");
    }
    let named = index
        .targets(&key, &[client("c6"), damaged, client("unknown")], TargetFields::Address)
        .await
        .unwrap();
    assert_eq!(named[0].as_ref().map(|target| &target.client_id), Ok(&client("c6")));
    assert_eq!(named[1..], [Err(NoTarget::Unreadable), Err(NoTarget::Unknown)]);
}

#[tokio::test]
async fn a_device_whose_value_the_dictionary_lost_keeps_no_other_from_a_count_an_export_or_a_move()
{
    let (index, key, namespace, mut redis) = begin().await;
    let mut devices: Vec<_> =
        (0..100).map(|n| device(&format!("c{n}"), &[("country", "CN")])).collect();
    index.put_devices(&key, &devices, NOW).await.unwrap();
    // Of the latest code, as the last writes have it.
    devices[7] = device("c7", &[("country", "SG")]);
    index.put_devices(&key, &devices[7..8], NOW).await.unwrap();
    let values = ["v0", "s0"].map(|name| format!("{namespace}:{{{key}}}:{name}"));
    let lost = redis::cmd("RPOP").arg(&values[0]).to_owned();
    assert_eq!(lost.query_async::<String>(&mut redis).await.unwrap(), "SG");
    let forget = redis::cmd("HDEL").arg(&values[1]).arg("SG").to_owned();
    assert_eq!(forget.query_async::<u64>(&mut redis).await.unwrap(), 1);

    let index = RedisIndex::connect(&redis_url(), &namespace, Default::default()).await.unwrap();
    let list = async || {
        let (mut listed, mut registrations, mut unreadable) = (Vec::new(), 0, [0; 2]);
        for range in index.extent(&key).await.unwrap() {
            let scanned = index.list_devices(&key, range, 1000).await.unwrap();
            listed.extend(scanned.items);
            unreadable[0] += scanned.unreadable;
            let scanned = index.list_registrations(&key, range, 1000).await.unwrap();
            registrations += scanned.items.len();
            unreadable[1] += scanned.unreadable;
        }
        listed.sort_by(|a, b| a.client_id.cmp(&b.client_id));
        (listed, registrations, unreadable)
    };
    let of_id = |devices: &[Device]| {
        let mut devices = devices.to_vec();
        devices.sort_by(|a, b| a.client_id.cmp(&b.client_id));
        devices
    };
    let counted = tally_devices(&index, &key, Attribute::Country).await.unwrap();
    assert_eq!(counted.by_value, [(Some("CN".into()), 99), (None, 1)].into());
    let others = [&devices[..7], &devices[8..]].concat();
    assert_eq!(list().await, (of_id(&others), 99, [1; 2]));
    index.put_devices(&key, &devices[7..8], NOW).await.unwrap();
    assert_eq!(list().await, (of_id(&devices), 100, [0; 2]), "it registered again");
}

#[tokio::test]
async fn a_dictionary_that_is_longer_than_the_codes_reach_is_read_once() {
    let (index, key, namespace, mut redis) = begin().await;
    index.put_devices(&key, &[device("c", &[("country", "CN")])], NOW).await.unwrap();
    let list = format!("{namespace}:{{{key}}}:v0");
    for part in 0..7 {
        let values: Vec<String> = (0..10_000).map(|n| format!("x{part}-{n}")).collect();
        let mut push = redis::cmd("RPUSH");
        push.arg(&list).arg(values);
        push.query_async::<u64>(&mut redis).await.unwrap();
    }
    let again = RedisIndex::connect(&redis_url(), &namespace, Default::default()).await.unwrap();
    let found = timeout(SOON, again.device(&key, &client("c"))).await.expect("an end").unwrap();
    assert!(found.is_some());
}

#[tokio::test]
async fn a_step_that_cannot_be_counted_changes_nothing() {
    let (_, _, namespace, mut redis) = begin().await;
    let message_id = MessageId::issue_named(&app());
    let opened = NewEntry {
        message_id,
        app: key(),
        accepted_at: UnixMillis::now(),
        expires_at: UnixMillis::MAX,
        dedup_nonce: 0,
        keep_until: UnixMillis::MAX,
        plan: Some(Plan::of(push_model::device::TransportKind::Mqtt, vec![vec![], vec![]])),
        claim: None,
        replaces: None,
        broadcast: None,
    };
    let ledger = ledger(&namespace).await;
    ledger.begin(&opened).await.unwrap();
    let entries = redis::cmd("KEYS").arg(format!("{namespace}:{{l/*}}:m*")).to_owned();
    let entries: Vec<String> = entries.query_async(&mut redis).await.unwrap();
    let [entry] = &*entries else { panic!("{entries:?}") };
    for damage in ["abc", "-5", "9223372036854775807"] {
        let mut set = redis::cmd("HSET");
        set.arg(entry).arg("sent").arg(damage);
        set.query_async::<u32>(&mut redis).await.unwrap();
        let outcomes = Outcomes { sent: 1, ..Outcomes::default() };
        let step = Advance {
            dedup_nonce: 0,
            partition: 1,
            from: PartitionState::default(),
            to: PartitionState::ENDED,
            leftovers: None,
            counts: Counts { targeted: 1, outcomes, ..Counts::default() },
            keep_until: None,
        };
        let answer = ledger.advance(&key(), &message_id, &step).await;
        assert!(matches!(answer, Err(IndexError::Corrupt(_))), "{damage}: {answer:?}");
    }
    let mut fields = redis::cmd("HMGET");
    fields.arg(entry).arg("state:1").arg("targeted");
    let fields: Vec<Option<String>> = fields.query_async(&mut redis).await.unwrap();
    assert_eq!(fields, [None, None]);
}

#[tokio::test]
async fn a_shard_that_cannot_be_read_keeps_no_device_of_another_from_its_message() {
    let (index, key, namespace, mut redis) = begin().await;
    let devices: Vec<_> = (0..120).map(|n| device(&format!("c{n}"), &[])).collect();
    let clients: Vec<_> = devices.iter().map(|device| device.client_id.clone()).collect();
    let shard_of = |client: &ClientId| index.storage_order(client) >> 40;
    let damaged = shard_of(&clients[0]);
    index.put_devices(&key, &devices, NOW).await.unwrap();
    let shard = format!("{namespace}:{{{key}/{damaged}}}");
    let mut set = async |field: &str, value: &str| {
        let set = redis::cmd("HSET").arg(&shard).arg(field).arg(value).to_owned();
        set.query_async::<u64>(&mut redis).await.unwrap();
    };
    // An index with an empty cache of slots.
    let index = RedisIndex::connect(&redis_url(), &namespace, Default::default()).await.unwrap();
    // Another version's layout: the devices of that shard are refused, all others are found.
    set("layout", "99").await;
    let each =
        join_all(clients.iter().map(|client| {
            index.targets(&key, std::slice::from_ref(client), TargetFields::Address)
        }));
    for (client, target) in clients.iter().zip(timeout(SOON, each).await.unwrap()) {
        match shard_of(client) == damaged {
            true => assert!(matches!(target, Err(IndexError::Refused(_))), "{target:?}"),
            false => assert!(target.unwrap()[0].is_ok(), "{client:?}"),
        }
    }
    set("layout", "1").await;
    set("buckets", "nan").await;
    let all =
        timeout(SOON, index.targets(&key, &clients, TargetFields::Address)).await.unwrap().unwrap();
    for (client, target) in clients.iter().zip(&all) {
        match shard_of(client) == damaged {
            true => assert_eq!(*target, Err(NoTarget::Unreadable), "{client:?}"),
            false => assert!(target.is_ok(), "{client:?} {target:?}"),
        }
    }
}

#[tokio::test]
async fn what_is_no_page_in_a_list_of_the_ledger_stops_no_round() {
    let (_, _, namespace, mut redis) = begin().await;
    for (part, junk) in [(5, &b"hello"[..]), (5, b"1a x.y"), (255, b"\xff\0")] {
        let push =
            redis::cmd("RPUSH").arg(format!("{namespace}:{{l/{part}}}:o")).arg(junk).to_owned();
        push.query_async::<u64>(&mut redis).await.unwrap();
    }
    let round = timeout(SOON, ledger(&namespace).await.keep_within(0, UnixMillis::now()))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((round.history.oldest, round.more), (None, false), "{round:?}");
    let left = redis::cmd("EXISTS").arg(format!("{namespace}:{{l/5}}:o")).to_owned();
    assert_eq!(left.query_async::<u64>(&mut redis).await.unwrap(), 0);
}
