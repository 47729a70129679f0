//! Devices by their client ids.

use std::slice::from_ref;

use futures::future::join_all;
use push_index::{AttributeSet, Index, MAX_DISTINCT_VALUES, Put};
use push_model::{
    app::AppKey,
    attributes::Attribute,
    device::{NoTarget, TargetFields},
    filter::Column,
    targeting::Targeting,
    time::UnixMillis,
};

use crate::index::support::{NOW, client, device, key, scan_all, wanted};

pub(crate) async fn a_device_comes_back_as_it_was_registered(index: &dyn Index) {
    let whole = device(
        "whole",
        &[
            ("country", "cn"),
            ("language", "zh-Hans-CN"),
            ("brand", "Xiao Mi"),
            ("model", "型号 12"),
            ("os_version", "34"),
            ("app_version", "2.0"),
            ("transport", "fcm"),
            ("token", "töken"),
        ],
    );
    let bare = device("bare", &[]);
    let put = index.put_devices(&key(), &[whole.clone(), bare.clone()], NOW).await.unwrap();
    assert_eq!(put, [Ok(Put::Created), Ok(Put::Created)]);
    for device in [whole, bare] {
        assert_eq!(index.device(&key(), &device.client_id).await.unwrap(), Some(device));
    }
    assert_eq!(index.device(&key(), &client("unknown")).await.unwrap(), None);
}

/// Two client ids with the same 46 bits of SHA-256, which is all that the Redis engine keeps in its
/// map.
const ALIKE: [&str; 2] = ["c6007198", "c8086181"];

pub(crate) async fn two_clients_that_the_map_cannot_tell_apart_are_two_devices(index: &dyn Index) {
    let of = |country| ALIKE.map(|id| device(id, &[("country", country)]));
    let [first, second] = of("CN");
    let put = index.put_devices(&key(), &[first.clone(), second.clone()], NOW).await.unwrap();
    assert_eq!(put, [const { Ok(Put::Created) }; 2], "in one call");
    let [_, moved] = of("SG");
    let put = index.put_devices(&key(), &[first.clone(), moved.clone()], NOW).await.unwrap();
    assert_eq!(put, [const { Ok(Put::Updated) }; 2]);
    assert_eq!(index.device(&key(), &first.client_id).await.unwrap(), Some(first.clone()));
    assert_eq!(index.device(&key(), &moved.client_id).await.unwrap(), Some(moved.clone()));
    assert!(index.remove_device(&key(), &first.client_id).await.unwrap());
    assert_eq!(index.device(&key(), &first.client_id).await.unwrap(), None);
    assert_eq!(index.device(&key(), &moved.client_id).await.unwrap(), Some(moved));
    let put = index.put_devices(&key(), &[first], NOW).await.unwrap();
    assert_eq!(put, [Ok(Put::Created)], "beside the one that is there");
    assert_eq!(index.count_devices(&key()).await.unwrap(), 2);
}

pub(crate) async fn registering_again_replaces_the_device_and_keeps_its_time_of_registration(
    index: &dyn Index,
) {
    let old = device("c", &[("country", "CN"), ("token", "a long old token")]);
    let new = device("c", &[("brand", "x"), ("transport", "webhook"), ("token", "t")]);
    index.put_devices(&key(), &[old], NOW).await.unwrap();
    let later = UnixMillis(NOW.0 + 1000);
    let put = index.put_devices(&key(), std::slice::from_ref(&new), later).await.unwrap();
    assert_eq!(put, [Ok(Put::Updated)]);
    assert_eq!(index.device(&key(), &new.client_id).await.unwrap(), Some(new));
    assert_eq!(index.count_devices(&key()).await.unwrap(), 1);
    let reached = scan_all(index, &key(), &Targeting::all_devices(), NOW, 10).await;
    assert_eq!(reached, ["c"], "by a message that was accepted before it changed");
}

pub(crate) async fn of_two_entries_for_one_client_in_one_call_the_later_wins(index: &dyn Index) {
    let mut devices: Vec<_> = (0..700).map(|i| device(&format!("c{i}"), &[])).collect();
    devices.insert(0, device("twice", &[("country", "CN")]));
    devices.push(device("twice", &[("country", "SG")]));
    let put = index.put_devices(&key(), &devices, NOW).await.unwrap();
    assert_eq!((put[0].clone(), put[701].clone()), (Ok(Put::Created), Ok(Put::Updated)));
    assert_eq!(index.device(&key(), &client("twice")).await.unwrap().as_ref(), devices.last());
    assert_eq!(index.count_devices(&key()).await.unwrap(), 701);
}

pub(crate) async fn a_removed_device_is_gone_and_can_come_back(index: &dyn Index) {
    let there = device("c", &[("country", "CN")]);
    assert!(!index.remove_device(&key(), &there.client_id).await.unwrap());
    index.put_devices(&key(), std::slice::from_ref(&there), NOW).await.unwrap();
    assert!(index.remove_device(&key(), &there.client_id).await.unwrap());
    assert!(!index.remove_device(&key(), &there.client_id).await.unwrap());
    assert_eq!(index.device(&key(), &there.client_id).await.unwrap(), None);
    assert_eq!(
        index.targets(&key(), &[client("c")], TargetFields::Address).await.unwrap(),
        [Err(NoTarget::Unknown)]
    );
    assert_eq!(index.count_devices(&key()).await.unwrap(), 0);
    let put = index.put_devices(&key(), &[there], NOW).await.unwrap();
    assert_eq!(put, [Ok(Put::Created)]);
    let all = scan_all(index, &key(), &Targeting::all_devices(), NOW, 10).await;
    assert_eq!(all, ["c"], "a slot that was used again is listed once");
}

pub(crate) async fn many_devices_are_registered_and_found_by_their_ids(index: &dyn Index) {
    let devices: Vec<_> = (0..12_000)
        .map(|i| device(&format!("client-{i}"), &[("os_version", &(i % 40).to_string())]))
        .collect();
    for part in devices.chunks(5000) {
        let put = index.put_devices(&key(), part, NOW).await.unwrap();
        assert!(put.iter().all(|put| *put == Ok(Put::Created)));
    }
    assert_eq!(index.count_devices(&key()).await.unwrap(), 12_000);
    let mut asked: Vec<_> =
        devices.iter().step_by(12).map(|device| device.client_id.clone()).collect();
    asked.insert(500, client("unknown"));
    asked.push(asked[0].clone());
    let targets = index.targets(&key(), &asked, TargetFields::Address).await.unwrap();
    for (asked, target) in asked.iter().zip(&targets) {
        let found = target.as_ref().ok().map(|target| &target.client_id);
        assert_eq!(found, (asked.as_str() != "unknown").then_some(asked));
    }
    assert!(index.targets(&key(), &[], TargetFields::Address).await.unwrap().is_empty());
}

pub(crate) async fn long_ids_and_tokens_of_any_length_are_kept_exactly(index: &dyn Index) {
    let id = |len: usize| format!("{len:x<128}");
    let lengths = [0, 1, 60, 70, 79, 80, 81, 126, 127, 128, 255, 256, 4095, 4096];
    let devices: Vec<_> = lengths
        .iter()
        .map(|len| {
            let token = "t".repeat(*len);
            let fields = [("token", token.as_str())];
            device(&id(*len), &fields[..usize::from(*len > 0)])
        })
        .collect();
    index.put_devices(&key(), &devices, NOW).await.unwrap();
    for device in &devices {
        let read = index.device(&key(), &device.client_id).await.unwrap();
        assert_eq!(read.as_ref(), Some(device));
    }
    // Also after each gets the token of another device, which is longer or shorter.
    let mut turned = devices.clone();
    for (device, other) in turned.iter_mut().zip(devices.iter().rev()) {
        device.token.clone_from(&other.token);
    }
    index.put_devices(&key(), &turned, NOW).await.unwrap();
    for device in &turned {
        let read = index.device(&key(), &device.client_id).await.unwrap();
        assert_eq!(read.as_ref(), Some(device));
    }
}

pub(crate) async fn apps_do_not_see_each_others_devices(index: &dyn Index) {
    let other = AppKey::first("app2".parse().unwrap());
    index.put_devices(&key(), &[device("c", &[("country", "CN")])], NOW).await.unwrap();
    assert_eq!(index.device(&other, &client("c")).await.unwrap(), None);
    assert_eq!(index.count_devices(&other).await.unwrap(), 0);
    assert!(!index.remove_device(&other, &client("c")).await.unwrap());
    assert_eq!(index.count_devices(&key()).await.unwrap(), 1);
}

pub(crate) async fn a_full_dictionary_stores_new_values_as_absent_and_keeps_known_ones(
    index: &dyn Index,
) {
    let numbered = |i: usize| device(&format!("c{i}"), &[("model", &format!("m{i}"))]);
    let devices: Vec<_> = (0..MAX_DISTINCT_VALUES).map(numbered).collect();
    for part in devices.chunks(10_000) {
        let put = index.put_devices(&key(), part, NOW).await.unwrap();
        assert!(put.iter().all(|put| *put == Ok(Put::Created)));
    }
    let batch = [
        device("x", &[("model", "m0")]),
        device("y", &[("model", "one more"), ("country", "CN")]),
        device("c1", &[("model", "one more"), ("brand", "b")]),
    ];
    let mut absent = AttributeSet::default();
    absent.insert(Attribute::Model);
    let put = index.put_devices(&key(), &batch, NOW).await.unwrap();
    let without = |is_new| Ok(Put::Incomplete { is_new, absent: absent.into() });
    assert_eq!(put, [Ok(Put::Created), without(true), without(false)]);
    let key = &key();
    let alone = batch.each_ref().map(|device| index.put_devices(key, from_ref(device), NOW));
    let alone: Vec<_> = join_all(alone).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(alone, [[Ok(Put::Updated)], [without(false)], [without(false)]], "together");
    for (id, fields) in [("y", [("country", "CN")]), ("c1", [("brand", "b")])] {
        assert_eq!(index.device(key, &client(id)).await.unwrap(), Some(device(id, &fields)));
    }
    let last = numbered(MAX_DISTINCT_VALUES - 1);
    assert_eq!(index.put_devices(key, from_ref(&last), NOW).await.unwrap(), [Ok(Put::Updated)]);
    assert_eq!(index.device(key, &last.client_id).await.unwrap(), Some(last));
    let cn = scan_all(index, key, &wanted(Attribute::Country, &["CN"]), NOW, 10).await;
    assert_eq!(cn, ["y"]);
    let listed = index.filled_dictionaries().await.unwrap();
    // Only apps with a record are listed by every engine.
    let model = Column::BuiltIn(Attribute::Model);
    assert!(listed.iter().all(|(_, used)| used.fullest() == (model, 1000)));
}
