//! Values that no device has are freed, and their codes are given to other values.

use futures::future::{join, join_all};
use push_index::{Index, MAX_DISTINCT_VALUES, Put, SweepStep};
use push_model::{attributes::Attribute, device::Device};

use crate::index::support::{NOW, client, count_all, device, key, scan_all, wanted};

/// Devices that one call registers.
const AT_ONCE: usize = 8192;

fn with_version(id: &str, version: usize) -> Device {
    device(id, &[("app_version", &version.to_string()), ("country", "CN")])
}

/// Both steps of a sweep. Returns how many values were freed.
async fn sweep(index: &dyn Index) -> u64 {
    let mut freed = 0;
    for _ in 0..2 {
        freed += index.sweep(&key(), SweepStep::Now).await.unwrap().freed;
    }
    freed
}

async fn reaches(index: &dyn Index, version: usize, expected: &[&str]) {
    let targeting = wanted(Attribute::AppVersion, &[&version.to_string()]);
    assert_eq!(scan_all(index, &key(), &targeting, NOW, 10).await, expected, "{version}");
    assert_eq!(count_all(index, &targeting, NOW).await, expected.len() as u64, "{version}");
}

pub(crate) async fn values_that_no_device_has_are_freed_and_their_codes_have_other_values(
    index: &dyn Index,
) {
    let changes: Vec<_> = (0..600).map(|version| with_version("changes", version)).collect();
    index.put_devices(&key(), &changes, NOW).await.unwrap();
    index.put_devices(&key(), &[with_version("stays", 300)], NOW).await.unwrap();
    // 599 and 300 are in use, and the country.
    assert_eq!(sweep(index).await, 598);
    assert_eq!(sweep(index).await, 0);
    let others: Vec<_> = (1000..1700).map(|n| with_version(&format!("d{n}"), n)).collect();
    for device in &others[..3] {
        let put = index.put_devices(&key(), std::slice::from_ref(device), NOW).await.unwrap();
        assert_eq!(put, [Ok(Put::Created)]);
    }
    index.put_devices(&key(), &others, NOW).await.unwrap();
    for version in [0, 1, 299, 301, 598] {
        reaches(index, version, &[]).await;
    }
    reaches(index, 300, &["stays"]).await;
    reaches(index, 599, &["changes"]).await;
    for n in [1000, 1002, 1003, 1253, 1254, 1255, 1256, 1597, 1598, 1599, 1699] {
        reaches(index, n, &[&*format!("d{n}")]).await;
        let stored = index.device(&key(), &client(&format!("d{n}"))).await.unwrap().unwrap();
        assert_eq!(stored.attributes.get(Attribute::AppVersion), Some(&*n.to_string()));
    }
    assert_eq!(count_all(index, &wanted(Attribute::Country, &["CN"]), NOW).await, 702);
    for device in &others {
        assert!(index.remove_device(&key(), &device.client_id).await.unwrap());
    }
    assert_eq!(sweep(index).await, 700);
}

pub(crate) async fn a_device_that_changes_a_value_without_end_keeps_no_other_from_its_values(
    index: &dyn Index,
) {
    for first in (0..MAX_DISTINCT_VALUES + 100).step_by(AT_ONCE) {
        let last = (first + AT_ONCE).min(MAX_DISTINCT_VALUES + 100);
        let changes: Vec<_> = (first..last).map(|n| with_version("changes", n)).collect();
        for put in index.put_devices(&key(), &changes, NOW).await.unwrap() {
            put.unwrap();
        }
    }
    let other = with_version("other", 100_000);
    let put = async || index.put_devices(&key(), std::slice::from_ref(&other), NOW).await.unwrap();
    assert!(matches!(*put().await, [Ok(Put::Incomplete { is_new: true, .. })]));
    assert!(sweep(index).await >= MAX_DISTINCT_VALUES as u64 - 1);
    assert_eq!(put().await, [Ok(Put::Updated)], "there is room again");
    reaches(index, 100_000, &["other"]).await;
    reaches(index, 0, &[]).await;
}

pub(crate) async fn a_value_that_is_wanted_again_during_a_sweep_is_kept(index: &dyn Index) {
    let devices: Vec<_> = (0..20).map(|n| with_version(&format!("d{n}"), n)).collect();
    index.put_devices(&key(), &devices, NOW).await.unwrap();
    for device in &devices {
        assert!(index.remove_device(&key(), &device.client_id).await.unwrap());
    }
    index.sweep(&key(), SweepStep::Now).await.unwrap();
    // By a list, and one by one.
    index.put_devices(&key(), &devices[..18], NOW).await.unwrap();
    index.put_devices(&key(), &devices[18..19], NOW).await.unwrap();
    for device in &devices[..2] {
        assert!(index.remove_device(&key(), &device.client_id).await.unwrap());
    }
    index.sweep(&key(), SweepStep::Now).await.unwrap();
    sweep(index).await;
    for n in 2..19 {
        reaches(index, n, &[&*format!("d{n}")]).await;
    }
    index.put_devices(&key(), &devices, NOW).await.unwrap();
    for n in [0, 1, 18, 19] {
        reaches(index, n, &[&*format!("d{n}")]).await;
    }
}

pub(crate) async fn sweeps_that_are_made_at_the_same_time_free_nothing_that_a_device_has(
    index: &dyn Index,
) {
    for round in 0..4 {
        let devices: Vec<_> =
            (0..100).map(|n| with_version(&format!("d{n}"), round * 50 + n)).collect();
        index.put_devices(&key(), &devices, NOW).await.unwrap();
        for _ in 0..2 {
            join_all((0..3).map(|_| join(sweep(index), sweep(index)))).await;
        }
        for n in [0, 49, 50, 99] {
            reaches(index, round * 50 + n, &[&*format!("d{n}")]).await;
        }
        for device in &devices {
            assert_eq!(
                index.device(&key(), &device.client_id).await.unwrap().as_ref(),
                Some(device)
            );
        }
    }
}
