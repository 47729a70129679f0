//! Devices that providers reported as gone: the list of those that were removed, and the counts that stop
//! removals.

use std::time::Duration;

use push_index::{Index, RemovedPage};
use push_model::{
    app::{App, AppKey},
    gone::{GONE_LISTED, GONE_LISTED_FOR, GoneReports, RemovedDevice},
    registration::GoneDevice,
    secret::Secret,
    time::UnixMillis,
};

use crate::index::support::{NOW, app, client, device, key};

const WINDOW: Duration = Duration::from_mins(10);

fn later(time: Duration) -> UnixMillis {
    NOW.plus(time)
}

async fn create(index: &dyn Index) -> AppKey {
    let record = App::new(app(), &Secret::generate(), NOW);
    assert!(index.create_app(&record).await.unwrap());
    AppKey::from(&index.app(&app()).await.unwrap().unwrap())
}

/// Registers devices at [`NOW`], and removes them as gone.
async fn remove(index: &dyn Index, app: &AppKey, clients: &[String], at: UnixMillis) {
    let fields = [("transport", "fcm"), ("token", "t")];
    let devices: Vec<_> = clients.iter().map(|id| device(id, &fields)).collect();
    index.put_devices(app, &devices, NOW).await.unwrap();
    let gone = devices.into_iter().map(|device| GoneDevice {
        client_id: device.client_id,
        transport: device.transport,
        token: device.token,
        since: at,
        code: "UNREGISTERED",
    });
    let gone: Vec<_> = gone.collect();
    let removed = index.remove_devices(app, &gone, at).await.unwrap();
    assert!(removed.into_iter().all(|removed| removed));
}

/// The devices that are listed since a time, read `limit` at a time.
async fn listed(
    index: &dyn Index,
    app: &AppKey,
    since: UnixMillis,
    limit: usize,
) -> Vec<RemovedDevice> {
    let (mut all, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let page = index.removed_devices(app, since, from, limit).await.unwrap();
        assert!(page.devices.len() <= limit);
        all.extend(page.devices);
        next = page.next;
    }
    all
}

fn ids(devices: &[RemovedDevice]) -> Vec<&str> {
    devices.iter().map(|device| device.client_id.as_str()).collect()
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("c{n}")).collect()
}

pub(crate) async fn gone_devices_that_are_removed_are_listed_the_newest_first(index: &dyn Index) {
    assert_eq!(index.removed_devices(&key(), NOW, 0, 10).await.unwrap(), RemovedPage::default());
    for minute in 1..=5 {
        remove(index, &key(), &[format!("d{minute}")], later(Duration::from_mins(minute))).await;
    }
    let since = later(Duration::from_mins(3));
    for limit in [1, 2, 5, 100] {
        assert_eq!(ids(&listed(index, &key(), since, limit).await), ["d5", "d4", "d3"], "{limit}");
        assert_eq!(listed(index, &key(), UnixMillis(0), limit).await.len(), 5, "{limit}");
    }
    let newest = listed(index, &key(), since, 10).await.remove(0);
    assert_eq!((newest.transport.name(), &*newest.code), ("fcm", "UNREGISTERED"));
    assert_eq!(newest.removed_at, later(WINDOW / 2));
    // A report about a device that is not removed lists nothing, and neither does an operator's removal.
    let kept = device("kept", &[("transport", "fcm"), ("token", "t")]);
    index.put_devices(&key(), std::slice::from_ref(&kept), later(WINDOW)).await.unwrap();
    let (client_id, transport, token) = (kept.client_id.clone(), kept.transport, kept.token);
    let early = GoneDevice { client_id, transport, token, since: NOW, code: "" };
    assert_eq!(index.remove_devices(&key(), &[early], later(WINDOW)).await.unwrap(), [false]);
    assert!(index.remove_device(&key(), &client("kept")).await.unwrap());
    assert_eq!(listed(index, &key(), NOW, 10).await.len(), 5);
}

pub(crate) async fn the_list_of_gone_devices_of_an_app_is_bounded_and_takes_no_other_apps_place(
    index: &dyn Index,
) {
    let other = AppKey::first("other".parse().unwrap());
    remove(index, &other, &["alone".to_owned()], later(WINDOW)).await;
    let many = numbered(GONE_LISTED + 1500);
    for some in many.chunks(4000) {
        remove(index, &key(), some, later(WINDOW)).await;
    }
    let all = listed(index, &key(), NOW, 1000).await;
    assert_eq!(all.len(), GONE_LISTED);
    assert!(ids(&all).contains(&many.last().unwrap().as_str()));
    assert!(!ids(&all).contains(&"c0"), "the oldest goes first");
    assert_eq!(ids(&listed(index, &other, NOW, 10).await), ["alone"]);
    // What is older than a week goes with the next removal.
    let week_later = later(WINDOW).plus(GONE_LISTED_FOR).plus_seconds(1);
    remove(index, &key(), &["new".to_owned()], week_later).await;
    assert_eq!(ids(&listed(index, &key(), UnixMillis(0), 1000).await), ["new"]);
}

pub(crate) async fn reports_of_gone_devices_are_counted_within_a_window(index: &dyn Index) {
    let app = create(index).await;
    let count = async |reported, at| index.count_gone(&app, reported, WINDOW, at).await.unwrap();
    let counted = |reported| GoneReports { reported, stopped_until: None };
    assert_eq!(count(40, NOW).await, counted(40));
    assert_eq!(count(2, NOW).await, counted(42));
    assert_eq!(count(8, later(WINDOW / 2)).await, counted(50));
    // A worker whose clock is behind.
    assert_eq!(count(1, NOW).await, counted(51));
    // The first ones are over.
    assert_eq!(count(1, later(WINDOW * 5 / 4)).await, counted(9));
    assert_eq!(count(3, later(WINDOW * 3)).await, counted(3));
    // One that is far ahead, and later one whose clock is right.
    let ahead = later(WINDOW * 1000);
    assert_eq!(count(7, ahead).await, counted(7));
    assert_eq!(count(5, later(WINDOW * 3)).await, counted(5));
    let counts = (0..20).map(|_| index.count_gone(&app, 10, WINDOW, ahead));
    futures::future::try_join_all(counts).await.unwrap();
    assert_eq!(count(0, ahead).await, counted(200), "no count of many at the same time is lost");
}

pub(crate) async fn removals_are_stopped_once_whoever_asks_and_for_their_app_alone(
    index: &dyn Index,
) {
    let app = create(index).await;
    let (first, second) = (UnixMillis::now().plus_seconds(60), UnixMillis::now().plus_seconds(90));
    assert_eq!(index.removals_stopped_until(&app).await.unwrap(), None);
    let asked = (0..5).map(|_| index.stop_removals(&app, None, first));
    let asked = futures::future::try_join_all(asked).await.unwrap();
    assert_eq!(asked.into_iter().filter(|stopped| *stopped).count(), 1);
    assert_eq!(index.removals_stopped_until(&app).await.unwrap(), Some(first));
    let now = UnixMillis::now();
    let counted = index.count_gone(&app, 3, WINDOW, now).await.unwrap();
    assert_eq!(counted, GoneReports { reported: 3, stopped_until: Some(first) });
    assert!(!index.stop_removals(&app, None, second).await.unwrap());
    assert!(index.stop_removals(&app, Some(first), second).await.unwrap());
    assert_eq!(index.removals_stopped_until(&app).await.unwrap(), Some(second));
    let other = AppKey::first("other".parse().unwrap());
    assert_eq!(index.removals_stopped_until(&other).await.unwrap(), None);
}

pub(crate) async fn what_is_known_of_an_apps_gone_devices_goes_with_it(index: &dyn Index) {
    let old = create(index).await;
    let (now, until) = (later(Duration::from_mins(1)), later(Duration::from_mins(2)));
    remove(index, &old, &numbered(10), now).await;
    index.count_gone(&old, 10, WINDOW, now).await.unwrap();
    assert!(index.stop_removals(&old, None, until).await.unwrap());
    assert!(index.remove_app(&app()).await.unwrap());
    let new = create(index).await;
    for app in [&old, &new] {
        assert_eq!(listed(index, app, UnixMillis(0), 10).await, []);
        assert_eq!(index.removals_stopped_until(app).await.unwrap(), None);
    }
    // Late calls for the removed app leave nothing.
    assert_eq!(index.count_gone(&old, 10, WINDOW, now).await.unwrap(), GoneReports::default());
    assert!(!index.stop_removals(&old, None, until).await.unwrap());
    let counted = index.count_gone(&new, 1, WINDOW, now).await.unwrap();
    assert_eq!(counted, GoneReports { reported: 1, stopped_until: None });
}
