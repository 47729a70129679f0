//! Devices by their client ids.

use std::slice::from_ref;

use futures::future::join_all;
use push_index::{Index, MAX_DISTINCT_VALUES, Put, PutRefused};
use push_model::{
    app::AppKey,
    attributes::Attribute,
    device::{Device, DeviceDraft, NoTarget},
    ids::{AppId, ClientId},
    targeting::Targeting,
    time::UnixMillis,
};

pub(crate) const NOW: UnixMillis = UnixMillis(1_800_000_000_000);

pub(crate) fn app() -> AppId {
    "app".parse().unwrap()
}

pub(crate) fn key() -> AppKey {
    AppKey::first(app())
}

pub(crate) fn client(id: &str) -> ClientId {
    id.parse().unwrap()
}

/// A device as somebody might write it.
pub(crate) fn device(id: &str, fields: &[(&str, &str)]) -> Device {
    let json: serde_json::Map<_, _> =
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
    let json = serde_json::to_string(&json).unwrap();
    let draft: DeviceDraft<'_> = serde_json::from_str(&json).unwrap();
    draft.check(client(id)).unwrap()
}

/// Everybody meant, in the order of their ids.
pub(crate) async fn scan_all(
    index: &dyn Index,
    app: &AppKey,
    targeting: &Targeting,
    registered_by: UnixMillis,
    limit: usize,
) -> Vec<String> {
    let mut found = Vec::new();
    for mut slice in index.extent(app).await.unwrap() {
        loop {
            let page = index.scan(app, slice, targeting, registered_by, limit).await.unwrap();
            assert!(page.items.len() <= limit, "{} of {limit}", page.items.len());
            found.extend(page.items.iter().map(|target| target.client_id.to_string()));
            let Some(next) = page.next else { break };
            assert!(slice.from < next && next < slice.to, "{slice:?} goes on at {next}");
            slice.from = next;
        }
    }
    found.sort();
    found
}

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
    assert_eq!(index.device(&key(), &client("nobody")).await.unwrap(), None);
}

/// The 46 bits of their SHA-256 that the Redis engine keeps in its map are the same.
const ALIKE: [&str; 2] = ["c6007198", "c8086181"];

pub(crate) async fn two_clients_that_the_map_cannot_tell_apart_are_two_devices(index: &dyn Index) {
    let of = |country| ALIKE.map(|id| device(id, &[("country", country)]));
    let [first, second] = of("CN");
    let put = index.put_devices(&key(), &[first.clone(), second.clone()], NOW).await.unwrap();
    assert_eq!(put, [Ok(Put::Created); 2], "in one call");
    let [_, moved] = of("SG");
    let put = index.put_devices(&key(), &[first.clone(), moved.clone()], NOW).await.unwrap();
    assert_eq!(put, [Ok(Put::Updated); 2]);
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
    let reached = scan_all(index, &key(), &Targeting::everyone(), NOW, 10).await;
    assert_eq!(reached, ["c"], "by a message that was accepted before it changed");
}

pub(crate) async fn of_two_entries_for_one_client_in_one_call_the_later_wins(index: &dyn Index) {
    let mut devices: Vec<_> = (0..700).map(|i| device(&format!("c{i}"), &[])).collect();
    devices.insert(0, device("twice", &[("country", "CN")]));
    devices.push(device("twice", &[("country", "SG")]));
    let put = index.put_devices(&key(), &devices, NOW).await.unwrap();
    assert_eq!((put[0], put[701]), (Ok(Put::Created), Ok(Put::Updated)));
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
    assert_eq!(index.targets(&key(), &[client("c")]).await.unwrap(), [Err(NoTarget::Unknown)]);
    assert_eq!(index.count_devices(&key()).await.unwrap(), 0);
    let put = index.put_devices(&key(), &[there], NOW).await.unwrap();
    assert_eq!(put, [Ok(Put::Created)]);
    let all = scan_all(index, &key(), &Targeting::everyone(), NOW, 10).await;
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
    asked.insert(500, client("stranger"));
    asked.push(asked[0].clone());
    let targets = index.targets(&key(), &asked).await.unwrap();
    for (asked, target) in asked.iter().zip(&targets) {
        let found = target.as_ref().ok().map(|target| &target.client_id);
        assert_eq!(found, (asked.as_str() != "stranger").then_some(asked));
    }
    assert!(index.targets(&key(), &[]).await.unwrap().is_empty());
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
    // And when each gets the token of another, longer or shorter.
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

pub(crate) async fn a_full_dictionary_refuses_the_device_with_the_new_value_alone(
    index: &dyn Index,
) {
    let numbered = |i: usize| device(&format!("c{i}"), &[("model", &format!("m{i}"))]);
    let devices: Vec<_> = (0..MAX_DISTINCT_VALUES).map(numbered).collect();
    for part in devices.chunks(10_000) {
        let put = index.put_devices(&key(), part, NOW).await.unwrap();
        assert!(put.iter().all(|put| *put == Ok(Put::Created)));
    }
    let batch = [device("x", &[("model", "m0")]), device("y", &[("model", "one more")])];
    let full = Err(PutRefused::DictionaryFull(Attribute::Model));
    let put = index.put_devices(&key(), &batch, NOW).await.unwrap();
    assert_eq!(put, [Ok(Put::Created), full]);
    let key = &key();
    let alone = batch.each_ref().map(|device| index.put_devices(key, from_ref(device), NOW));
    let alone: Vec<_> = join_all(alone).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(alone, [[Ok(Put::Updated)], [full]], "of two that come together");
    assert_eq!(index.device(key, &client("y")).await.unwrap(), None);
    let last = numbered(MAX_DISTINCT_VALUES - 1);
    assert_eq!(index.device(key, &last.client_id).await.unwrap(), Some(last));
}
