//! Registrations that can be told apart: what a login belongs to, and what a provider's report is about.

use push_index::{CarrierExtent, Index, Put, PutRefused};
use push_model::{
    device::{Device, TargetFields, TransportKind},
    profile::DeviceWrite,
    registration::{GoneDevice, RegistrationEpoch},
    targeting::Targeting,
    time::UnixMillis,
};

use crate::index::support::{NOW, client, count_all, device, key, scan_all};

fn later(millis: u64) -> UnixMillis {
    UnixMillis(NOW.0 + millis)
}

fn phone(id: &str, transport: &str, token: &str) -> Device {
    device(id, &[("transport", transport), ("token", token)])
}

/// A report about this device as it is.
fn gone(device: &Device, since: UnixMillis) -> GoneDevice {
    let Device { client_id, transport, token, .. } = device.clone();
    GoneDevice { client_id, transport, token, since, code: "gone" }
}

async fn register(index: &dyn Index, device: &Device, now: UnixMillis) -> (Put, RegistrationEpoch) {
    index.register(&key(), &device.clone().into(), None, now).await.unwrap().unwrap()
}

async fn epoch(index: &dyn Index, id: &str) -> RegistrationEpoch {
    let found =
        index.targets(&key(), &[client(id)], TargetFields::Address).await.unwrap().remove(0);
    found.unwrap().epoch
}

pub(crate) async fn an_epoch_lasts_from_the_first_registration_to_the_removal(index: &dyn Index) {
    for transport in ["mqtt", "fcm"] {
        let known = phone(transport, transport, "t");
        let (put, first) = register(index, &known, NOW).await;
        assert_eq!((put, epoch(index, transport).await), (Put::Created, first));
        // Registered again unchanged, changed in every way, and in a long list as an import has it.
        let mut changed = known.clone();
        changed.token = Some("new".into());
        changed.transport = TransportKind::Apns;
        for again in [&known, &changed, &known] {
            assert_eq!(register(index, again, later(5)).await, (Put::Updated, first));
        }
        let many: Vec<_> = (0..40).map(|n| device(&format!("{transport}{n}"), &[])).collect();
        index.put_devices(&key(), &[&many[..], &[changed]].concat(), later(6)).await.unwrap();
        assert_eq!(epoch(index, transport).await, first);
        // Another device of that id, within the same millisecond.
        for _ in 0..50 {
            let before = epoch(index, transport).await;
            assert!(index.remove_device(&key(), &known.client_id).await.unwrap());
            let (put, after) = register(index, &known, NOW).await;
            assert_eq!((put, epoch(index, transport).await), (Put::Created, after));
            assert_ne!(after, before);
        }
    }
}

pub(crate) async fn a_registration_is_renewed_only_while_it_is_stored(index: &dyn Index) {
    let renew = async |device: &Device, first| {
        let write: DeviceWrite = device.clone().into();
        index.register(&key(), &write, Some(first), later(5)).await.unwrap()
    };
    for transport in ["mqtt", "fcm"] {
        let known = phone(transport, transport, "t");
        let (_, first) = register(index, &known, NOW).await;
        let mut changed = known.clone();
        changed.token = Some("new".into());
        changed.transport = TransportKind::Apns;
        changed.profile.topics = vec!["f1".parse().unwrap()];
        for again in [&known, &changed, &changed, &known] {
            assert_eq!(renew(again, first).await, Ok((Put::Updated, first)));
            let stored = index.device(&key(), &known.client_id).await.unwrap();
            assert_eq!(stored.as_ref(), Some(again));
        }
        assert!(index.remove_device(&key(), &known.client_id).await.unwrap());
        assert_eq!(renew(&known, first).await, Err(PutRefused::NotRegistered));
        assert_eq!(index.device(&key(), &known.client_id).await.unwrap(), None);
        // What its backend registered since stays as it is.
        register(index, &known, NOW).await;
        assert_eq!(renew(&changed, first).await, Err(PutRefused::NotRegistered));
        assert_eq!(index.device(&key(), &known.client_id).await.unwrap(), Some(known));
    }
}

pub(crate) async fn a_device_that_registered_again_is_not_removed_as_gone(index: &dyn Index) {
    let (kept, left) = (phone("kept", "fcm", "t"), phone("left", "fcm", "t"));
    let (renewed, moved) = (phone("renewed", "fcm", "t"), phone("moved", "fcm", "t"));
    let all = [&kept, &left, &renewed, &moved].map(Clone::clone);
    index.put_devices(&key(), &all, NOW).await.unwrap();
    let reports: Vec<_> = all.iter().map(|device| gone(device, later(10))).collect();
    // One has another token, one registered again as it was, one has another transport.
    let again = [phone("kept", "fcm", "another"), renewed.clone(), phone("moved", "webhook", "t")];
    for device in &again {
        index.put_devices(&key(), std::slice::from_ref(device), later(10)).await.unwrap();
    }
    let mut with_unknown = reports.clone();
    with_unknown.push(gone(&phone("unknown", "fcm", "t"), later(10)));
    let removed = index.remove_devices(&key(), &with_unknown, later(10)).await.unwrap();
    assert_eq!(removed, [false, true, false, false, false]);
    assert_eq!(index.count_devices(&key()).await.unwrap(), 3);
    assert_eq!(index.device(&key(), &left.client_id).await.unwrap(), None);
    // A broadcast that was accepted before they registered again still reaches them.
    let everyone = Targeting::all_devices();
    assert_eq!(scan_all(index, &key(), &everyone, NOW, 10).await, ["kept", "moved", "renewed"]);
    // A later report is about them as they are now.
    let reports: Vec<_> = again.iter().map(|device| gone(device, later(11))).collect();
    assert_eq!(index.remove_devices(&key(), &reports, later(11)).await.unwrap(), [true; 3]);
    assert_eq!(index.remove_devices(&key(), &reports, later(11)).await.unwrap(), [false; 3]);
    assert_eq!(index.carriers(&key()).await.unwrap(), []);
    assert!(index.remove_devices(&key(), &[], NOW).await.unwrap().is_empty());
}

pub(crate) async fn many_devices_are_removed_in_one_call(index: &dyn Index) {
    let devices: Vec<_> = (0..500).map(|n| phone(&format!("c{n}"), "apns", "t")).collect();
    index.put_devices(&key(), &devices, NOW).await.unwrap();
    let mut reports: Vec<_> = devices.iter().map(|device| gone(device, later(1))).collect();
    for report in reports.iter_mut().step_by(5) {
        report.token = None;
    }
    let removed = index.remove_devices(&key(), &reports, later(11)).await.unwrap();
    assert!((0..).zip(&removed).all(|(n, removed)| *removed == (n % 5 > 0)));
    assert_eq!(index.count_devices(&key()).await.unwrap(), 100);
}

pub(crate) async fn a_transport_is_listed_as_long_as_a_device_belongs_to_it(index: &dyn Index) {
    let listed = async || {
        let extents = index.carriers(&key()).await.unwrap();
        extents.into_iter().map(|extent| extent.carrier.kind()).collect::<Vec<_>>()
    };
    let mqtt: Vec<_> = (0..300).map(|n| device(&format!("m{n}"), &[])).collect();
    index.put_devices(&key(), &mqtt, NOW).await.unwrap();
    assert_eq!(listed().await, [TransportKind::Mqtt]);
    let few: Vec<_> = (0..3).map(|n| phone(&format!("w{n}"), "webhook", "t")).collect();
    index.put_devices(&key(), &few, NOW).await.unwrap();
    assert_eq!(listed().await, [TransportKind::Mqtt, TransportKind::Webhook]);
    // The few devices are in few places.
    let extents = index.carriers(&key()).await.unwrap();
    let slots = |extent: &CarrierExtent| {
        extent.ranges.iter().map(|range| u64::from(range.to - range.from)).sum::<u64>()
    };
    assert!(slots(&extents[1]) < 40, "{extents:?}");
    for device in &few {
        assert!(index.remove_device(&key(), &device.client_id).await.unwrap());
    }
    assert_eq!(listed().await, [TransportKind::Mqtt]);

    // All devices change to another transport. A broadcast that was accepted before that needs the former one,
    // and one that was accepted a while after does not.
    let moved: Vec<_> = (0..300).map(|n| phone(&format!("m{n}"), "apns", "t")).collect();
    index.put_devices(&key(), &moved, later(1000)).await.unwrap();
    assert_eq!(listed().await, [TransportKind::Mqtt, TransportKind::Apns]);
    let everyone = Targeting::all_devices();
    assert_eq!(count_all(index, &everyone, NOW).await, 300);
    assert_eq!(count_all(index, &everyone, later(300_000)).await, 300);
    let month = 32 * 24 * 3600 * 1000;
    index.put_devices(&key(), &moved, later(month)).await.unwrap();
    assert_eq!(listed().await, [TransportKind::Apns]);
    assert_eq!(count_all(index, &everyone, later(month)).await, 300);
}
