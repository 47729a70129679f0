//! Several programs with dictionaries in their caches, while values are freed.

use std::time::Duration;

use push_index::{Devices, DictionarySweeps, Put, SweepStep, redis::RedisIndex};
use push_model::attributes::Attribute;
use push_tests::{eventually, namespace, redis_cluster_url, redis_url, servers::Redis};

use crate::index::support::{NOW, admin, ask, client, device, key, scan_all, wanted};

async fn connect(url: &str, namespace: &str) -> RedisIndex {
    RedisIndex::connect(url, namespace, Default::default()).await.unwrap()
}

/// Lets a program's time since the last step of a sweep be over.
async fn let_time_pass(index: &str, namespace: &str, field: &str) {
    let mut admin = admin(index).await;
    let state = format!("{namespace}:{{{}}}:d", key());
    let time = ask(&mut admin, &["HGET", &state, field]).await;
    let before = time.parse::<u64>().unwrap() - 1000;
    ask(&mut admin, &["HSET", &state, field, &before.to_string()]).await;
}

#[tokio::test]
async fn a_code_is_freed_and_reused_only_when_no_other_program_can_remember_its_value() {
    let (url, namespace) = (redis_url(), namespace());
    let (sweeper, other) = (connect(&url, &namespace).await, connect(&url, &namespace).await);
    let of = |id: &str, model: &str| device(id, &[("model", model)]);
    let steps = async || sweeper.sweep(&key(), SweepStep::InTime).await.unwrap();
    sweeper.put_devices(&key(), &[of("a", "old"), of("b", "kept")], NOW).await.unwrap();
    let old = wanted(Attribute::Model, &["old"]);
    assert_eq!(scan_all(&other, &key(), &old, NOW, 9).await, ["a"], "it has the dictionary now");
    sweeper.put_devices(&key(), &[of("a", "kept")], NOW).await.unwrap();
    assert_eq!(steps().await.retired, 1);
    assert_eq!(steps().await, Default::default(), "too early");
    // A registration by a program that still has the code.
    other.put_devices(&key(), &[of("c", "old")], NOW).await.unwrap();
    let_time_pass(&url, &namespace, "retired_at").await;
    assert_eq!(steps().await.freed, 0, "a device has it again");
    assert_eq!(scan_all(&sweeper, &key(), &old, NOW, 9).await, ["c"]);

    other.put_devices(&key(), &[of("c", "kept")], NOW).await.unwrap();
    assert_eq!(steps().await.retired, 1);
    let_time_pass(&url, &namespace, "retired_at").await;
    assert_eq!(steps().await.freed, 1);
    // Too early for its code, so this value has a code of its own.
    sweeper.put_devices(&key(), &[of("d", "new")], NOW).await.unwrap();
    assert_eq!(scan_all(&other, &key(), &old, NOW, 9).await, [""; 0]);
    let_time_pass(&url, &namespace, "reuse_at").await;
    sweeper.put_devices(&key(), &[of("e", "newest")], NOW).await.unwrap();
    let mut redis = admin(&url).await;
    let values = format!("{namespace}:{{{}}}:v3", key());
    assert_eq!(ask(&mut redis, &["LINDEX", &values, "1"]).await, "NEWEST", "it is reused");
    for index in [&sweeper, &connect(&url, &namespace).await] {
        for (model, expected) in [("new", "d"), ("newest", "e")] {
            let found = scan_all(index, &key(), &wanted(Attribute::Model, &[model]), NOW, 9).await;
            assert_eq!(found, [expected]);
        }
        let read = index.device(&key(), &client("e")).await.unwrap();
        assert_eq!(read, Some(of("e", "newest")));
    }
}

#[tokio::test]
async fn a_dictionary_in_a_cache_learns_the_values_of_reused_codes() {
    for url in [redis_url(), redis_cluster_url()] {
        let namespace = namespace();
        let (one, two) = (connect(&url, &namespace).await, connect(&url, &namespace).await);
        let of =
            |id: usize, model: usize| device(&format!("d{id}"), &[("model", &format!("m{model}"))]);
        let devices: Vec<_> = (0..50).map(|n| of(n, n)).collect();
        one.put_devices(&key(), &devices, NOW).await.unwrap();
        for device in &devices[5..] {
            assert!(one.remove_device(&key(), &device.client_id).await.unwrap());
        }
        for _ in 0..2 {
            one.sweep(&key(), SweepStep::Now).await.unwrap();
        }
        // Read while the codes are free.
        assert_eq!(two.device(&key(), &client("d1")).await.unwrap(), Some(of(1, 1)));
        let others: Vec<_> = (5..80).map(|n| of(n, 100 + n)).collect();
        one.put_devices(&key(), &others, NOW).await.unwrap();
        for device in others.iter().step_by(7) {
            let model = device.attributes.get(Attribute::Model).unwrap();
            let targeting = wanted(Attribute::Model, &[model]);
            let found = scan_all(&two, &key(), &targeting, NOW, 9).await;
            assert_eq!(found, [device.client_id.as_str()]);
            let read = two.device(&key(), &device.client_id).await.unwrap();
            assert_eq!(read.as_ref(), Some(device));
        }
    }
}

#[tokio::test]
async fn a_registration_that_reaches_redis_too_late_for_its_codes_changes_nothing() {
    let server = Redis::start().await.unwrap();
    let namespace = namespace();
    let index = connect(&server.url(), &namespace).await;
    index.put_devices(&key(), &[device("known", &[("model", "m")])], NOW).await.unwrap();
    let mut redis = admin(&server.url()).await;
    ask(&mut redis, &["CLIENT", "PAUSE", "44000", "WRITE"]).await;
    let (new, changed) = (device("new", &[("model", "m")]), device("known", &[]));
    for late in [&new, &changed] {
        let put = index.put_devices(&key(), std::slice::from_ref(late), NOW).await;
        assert!(put.is_err(), "{put:?}");
    }
    let write = async || {
        let set = redis::cmd("SET").arg("over").arg(1).to_owned();
        set.query_async::<String>(&mut admin(&server.url()).await).await.map_err(|e| e.to_string())
    };
    eventually("the server takes writes again", Duration::from_secs(90), write).await;
    let fresh = connect(&server.url(), &namespace).await;
    let is_same = async || {
        let known = fresh.device(&key(), &client("known")).await.unwrap();
        let new = fresh.device(&key(), &client("new")).await.unwrap();
        match (known.is_some_and(|known| known != changed), new) {
            (true, None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    };
    is_same().await.unwrap();
    let put = async || {
        let put = fresh.put_devices(&key(), std::slice::from_ref(&new), NOW).await;
        if matches!(put.as_deref(), Ok([Ok(Put::Created)])) {
            Ok(())
        } else {
            Err(format!("{put:?}"))
        }
    };
    eventually("it registers again", Duration::from_secs(30), put).await;
}
