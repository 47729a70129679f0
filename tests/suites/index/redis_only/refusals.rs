//! A Redis that refuses writes for a while, for each of its reasons: every call that writes returns
//! the refusal, nothing is half written, and the same calls succeed afterwards.

use std::{collections::BTreeMap, num::NonZeroU32};

use push_index::{
    Apps, AuditTrail, Devices, MessageUsage, Pacing, Put, SecretUses, redis::RedisIndex,
};
use push_ledger::{Ledger, redis::RedisLedger};
use push_model::{
    app::{App, AppKey},
    audit::AuditEvent,
    device::Device,
    ids::MessageId,
    ledger::{
        Advance, AdvanceOutcome, Checkpoint, Counts, NewEntry, Outcomes, PartitionState, Plan,
        Recall,
    },
    pace::{Acquire, TrafficClass},
    secret::Secret,
    usage::{UsageCounts, UsageHour, UsageKind},
};
use push_store::{IndexError, redis::RedisStore};
use push_tests::{eventually, namespace, servers::Redis};
use redis::{Cmd, Value, aio::MultiplexedConnection};

use crate::index::support::{NOW, admin, app, client, device, key};

/// A server, an index on it, and what the calls of [`Fixture::write_all`] need there.
struct Fixture {
    server: Redis,
    admin: MultiplexedConnection,
    index: RedisIndex,
    ledger: RedisLedger,
    begun: NewEntry,
    /// Devices of one shard: one is there, one was removed and left its slot, one is new.
    here: Device,
    comes: Device,
}

fn cmd(words: &[&str]) -> Cmd {
    let mut cmd = redis::cmd(words[0]);
    cmd.arg(&words[1..]);
    cmd
}

fn record(id: &str) -> App {
    App::new(id.parse().unwrap(), &Secret::generate(), NOW)
}

fn new_entry() -> NewEntry {
    NewEntry {
        message_id: MessageId::issue_named(&app()),
        app: key(),
        accepted_at: NOW,
        expires_at: NOW.plus_seconds(60),
        dedup_nonce: 1,
        keep_until: NOW.plus_seconds(600),
        plan: None,
        claim: None,
        replaces: None,
        broadcast: None,
    }
}

impl Fixture {
    async fn new() -> Self {
        let server = Redis::start().await.unwrap();
        let admin = admin(&server.url()).await;
        let store =
            RedisStore::connect(&server.url(), &namespace(), Default::default()).await.unwrap();
        let (index, ledger) = (RedisIndex::new(store.clone()), RedisLedger::new(store));
        for record in [record("app"), record("going")] {
            assert!(index.create_app(&record).await.unwrap());
            index
                .put_devices(&(&record).into(), &[device("c", &[("model", "m")])], NOW)
                .await
                .unwrap();
        }
        let shard = |id: &str| index.storage_order(&client(id)) >> 40;
        let mut neighbours =
            (0..).map(|n| format!("n{n}")).filter(|id| shard(id) == shard("left")).take(2);
        let here = neighbours.next().unwrap();
        let here = device(&here, &[("model", "m")]);
        let comes = device(&neighbours.next().unwrap(), &[("model", "m")]);
        let left = device("left", &[("model", "m")]);
        index.put_devices(&key(), &[here.clone(), left.clone()], NOW).await.unwrap();
        assert!(index.remove_device(&key(), &left.client_id).await.unwrap());
        let begun = new_entry();
        ledger.begin(&begun).await.unwrap();
        ledger.plan(&key(), &begun.message_id, &Plan::named()).await.unwrap();
        Self { server, admin, index, ledger, begun, here, comes }
    }

    async fn admin(&mut self, words: &[&str]) -> Value {
        cmd(words).query_async(&mut self.admin).await.unwrap()
    }

    /// Every key, with its content.
    async fn content(&mut self) -> BTreeMap<String, Vec<u8>> {
        let mut content = BTreeMap::new();
        let keys: Vec<String> = cmd(&["KEYS", "*"]).query_async(&mut self.admin).await.unwrap();
        for key in keys {
            let dump = cmd(&["DUMP", &key]).query_async(&mut self.admin).await.unwrap();
            content.insert(key, dump);
        }
        content
    }

    /// Every call that writes, in an order in which all can succeed.
    async fn write_all(&self) -> Vec<(&'static str, Result<(), IndexError>)> {
        let Self { index, ledger, begun, here, comes, .. } = self;
        let put = async |devices: &[Device]| -> Result<(), IndexError> {
            for put in index.put_devices(&key(), devices, NOW).await? {
                put.unwrap();
            }
            Ok(())
        };
        let changed = device(here.client_id.as_str(), &[]);
        let new_value = device("d", &[("model", "of this call")]);
        let unlike: Vec<_> = (0..300).map(|n| device(&format!("many{n}"), &[])).collect();
        let fresh = NewEntry { message_id: MessageId::issue_named(&app()), ..begun.clone() };
        let message = &begun.message_id;
        let checkpoint = Checkpoint::At { range: 0, offset: 5 };
        let batch = Advance {
            dedup_nonce: 1,
            partition: 0,
            from: PartitionState::default(),
            to: PartitionState { claim: None, step: 1, checkpoint },
            leftovers: Some(Vec::new()),
            counts: Counts {
                targeted: 5,
                outcomes: Outcomes { sent: 5, ..Outcomes::default() },
                ..Counts::default()
            },
            keep_until: Some(begun.keep_until.plus_seconds(600)),
        };
        let advance = async || match ledger.advance(&key(), message, &batch).await? {
            AdvanceOutcome::Saved { .. } => Ok(()),
            other => panic!("{other:?}"),
        };
        let recall = Recall { at: NOW, early: None };
        let pace = NonZeroU32::new(10).unwrap();
        let request = Acquire { devices: 1, pace, class: TrafficClass::Broadcast, now: NOW };
        let hour = UsageHour::of(UsageKind::Named, NOW);
        let hour = (hour, UsageCounts { accepted: 1, ..UsageCounts::default() });
        let going = "going".parse().unwrap();
        let event = AuditEvent {
            at: NOW,
            action: "a change".to_owned(),
            done: true,
            app: None,
            secret: None,
            message: None,
            program: "test".to_owned(),
            user: None,
            host: None,
        };
        vec![
            ("a new app", index.create_app(&record("new")).await.map(drop)),
            ("an app's record", index.update_app(&record("app")).await.map(drop)),
            ("removing an app", index.remove_app(&going).await.map(drop)),
            ("a new device in a slot that is free", put(std::slice::from_ref(comes)).await),
            ("a device that changed", put(&[changed]).await),
            ("a value that is new", put(&[new_value]).await),
            ("many devices", put(&unlike).await),
            ("removing a device", index.remove_device(&key(), &here.client_id).await.map(drop)),
            ("beginning an entry", ledger.begin(&fresh).await.map(drop)),
            ("a plan", ledger.plan(&key(), &fresh.message_id, &Plan::named()).await.map(drop)),
            ("a batch", advance().await),
            ("a recall", ledger.recall(&key(), message, &recall).await.map(drop)),
            ("last uses", index.save_secret_uses(&key(), &[("default", Some(NOW))]).await),
            ("usage", index.add_usage(&key(), &[hour], NOW).await.map(drop)),
            ("an audit event", index.append_audit(&event, 10).await),
            ("a pace", index.acquire_pace(&key(), &request).await.map(drop)),
        ]
    }

    /// Every call is refused with this code and changes nothing, but for those of `whole`, which
    /// may succeed as a whole.
    async fn refuses(&mut self, code: &str, whole: &[&str]) {
        let before = self.content().await;
        for (what, result) in self.write_all().await {
            match result {
                Err(IndexError::Refused(why)) => {
                    assert!(why.to_string().to_uppercase().contains(code), "{what}: {why}");
                }
                // The entry was not begun, so there is nothing to write.
                Ok(()) if what == "a plan" => {}
                Ok(()) if whole.contains(&what) => {}
                other => panic!("{what}: {other:?}"),
            }
        }
        let after = self.content().await;
        let is_new_entry = |key: &str| key.contains("{l/") && !before.contains_key(key);
        let keys = before.keys().chain(after.keys());
        let changed: Vec<_> = keys
            .filter(|key| before.get(*key) != after.get(*key))
            .filter(|key| whole.is_empty() || !is_new_entry(key))
            .collect();
        assert!(changed.is_empty(), "half written: {changed:?}");
    }

    async fn goes_on(&mut self) {
        for (what, result) in self.write_all().await {
            assert!(result.is_ok(), "{what}: {result:?}");
        }
        let index = &self.index;
        assert_eq!(index.app(&"going".parse().unwrap()).await.unwrap(), None);
        assert_eq!(index.device(&key(), &self.here.client_id).await.unwrap(), None);
        let comes = index.device(&key(), &self.comes.client_id).await.unwrap();
        assert_eq!(comes.as_ref(), Some(&self.comes));
        assert_eq!(index.count_devices(&key()).await.unwrap(), 303);
        let entry = self.ledger.entry(&key(), &self.begun.message_id).await.unwrap().unwrap();
        assert_eq!((entry.targeted, entry.outcomes.sent), (5, 5));
    }
}

#[tokio::test]
async fn a_redis_that_became_a_replica_refuses_writes_until_it_is_a_master_again() {
    let mut fixture = Fixture::new().await;
    // Its master never answers, so it keeps its data.
    fixture.admin(&["REPLICAOF", "127.0.0.1", "1"]).await;
    fixture.refuses("READONLY", &[]).await;
    fixture.admin(&["REPLICAOF", "NO", "ONE"]).await;
    fixture.goes_on().await;
}

#[tokio::test]
async fn a_redis_with_too_few_replicas_refuses_writes_until_it_has_enough() {
    let mut fixture = Fixture::new().await;
    fixture.admin(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    fixture.refuses("NOREPLICAS", &[]).await;
    fixture.admin(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    fixture.goes_on().await;
}

#[tokio::test]
async fn a_redis_without_memory_refuses_writes_until_it_has_some() {
    let mut fixture = Fixture::new().await;
    fixture.admin(&["CONFIG", "SET", "maxmemory", "1"]).await;
    fixture.refuses("OOM", &["beginning an entry"]).await;
    fixture.admin(&["CONFIG", "SET", "maxmemory", "0"]).await;
    fixture.goes_on().await;
}

#[tokio::test]
async fn a_redis_that_cannot_save_refuses_writes_until_it_can() {
    let mut fixture = Fixture::new().await;
    // It cannot save, because a folder has the name of its file.
    let blocked = fixture.server.folder().join("dump.rdb");
    std::fs::create_dir_all(blocked.join("full")).unwrap();
    fixture.admin(&["CONFIG", "SET", "save", "3600 100000000"]).await;
    fixture.saves("err").await;
    fixture.refuses("MISCONF", &[]).await;
    std::fs::remove_dir_all(&blocked).unwrap();
    fixture.saves("ok").await;
    fixture.goes_on().await;
}

impl Fixture {
    /// Starts a save, and waits until it has ended with this status.
    async fn saves(&mut self, status: &str) {
        self.admin(&["BGSAVE"]).await;
        let wanted = format!("rdb_last_bgsave_status:{status}");
        let admin = self.admin.clone();
        eventually("the save has ended", std::time::Duration::from_secs(30), async || {
            let mut admin = admin.clone();
            let info: String = cmd(&["INFO", "persistence"]).query_async(&mut admin).await.unwrap();
            let ended = info.contains("rdb_bgsave_in_progress:0") && info.contains(&wanted);
            if ended { Ok(()) } else { Err(info) }
        })
        .await;
    }
}

#[tokio::test]
async fn what_no_program_of_ours_wrote_is_unreadable_and_not_a_refusal() {
    let mut fixture = Fixture::new().await;
    let here = fixture.here.clone();
    let broken = |what: &str, result: Result<(), IndexError>| match result {
        Err(IndexError::Corrupt(_)) => {}
        other => panic!("{what}: {other:?}"),
    };
    let keys: Vec<String> =
        cmd(&["KEYS", "*{app/*:d*"]).query_async(&mut fixture.admin).await.unwrap();
    for key in &keys {
        // A record whose length is beyond the end of the chunk.
        fixture.admin(&["SET", key, "\u{7f}abc"]).await;
    }
    let changed = device(here.client_id.as_str(), &[]);
    let index = &fixture.index;
    broken("reading", index.device(&key(), &here.client_id).await.map(drop));
    broken("registering", index.put_devices(&key(), &[changed], NOW).await.map(drop));
    broken("removing", index.remove_device(&key(), &here.client_id).await.map(drop));
    for key in &keys {
        fixture.admin(&["DEL", key]).await;
        fixture.admin(&["HSET", key, "another", "type"]).await;
    }
    let index = &fixture.index;
    broken("finding", index.device(&key(), &here.client_id).await.map(drop));
    broken("removing", index.remove_device(&key(), &here.client_id).await.map(drop));
    // Other apps are not affected.
    let other = device("other", &[]);
    let going = AppKey::first("going".parse().unwrap());
    let put = index.put_devices(&going, &[other], NOW).await.unwrap();
    assert_eq!(put, [Ok(Put::Created)]);
}
