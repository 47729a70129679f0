//! Apps that come from another store.

use push_index::{Index, Put};
use push_model::{
    app::{App, AppKey},
    registration::{Serial, Stamp},
    secret::Secret,
    targeting::Targeting,
    time::UnixMillis,
    transfer::{Arrival, Position, Registration},
};

use crate::index::support::{NOW, app, client, device, scan_all};

/// The name of an attempt.
const FIRST: &str = "first";

fn record(created_at: u64, generation: u64) -> App {
    let new = App::new(app(), &Secret::generate(), UnixMillis(created_at));
    App { generation, ..new }
}

fn arrival(of: &App) -> Arrival {
    Arrival {
        created_at: of.created_at,
        generation: of.generation,
        origin: "elsewhere".to_owned(),
        attempt: FIRST.to_owned(),
        begun_at: NOW,
        position: Position::default(),
    }
}

async fn begin(index: &dyn Index, of: &App) -> bool {
    index.begin_arrival(&app(), &arrival(of)).await.unwrap()
}

fn at(id: &str, time: u64) -> Registration {
    // The transport of every other one keeps when a device registered last.
    let transport = if time.is_multiple_of(2) { "mqtt" } else { "fcm" };
    let fields = [("country", "SG"), ("transport", transport), ("token", "t")];
    let registered_at = UnixMillis(NOW.0 + time);
    let renewed_at = UnixMillis(registered_at.0 + 1000 * (time % 2));
    let stamp = Stamp { registered_at, serial: Serial::of(time), renewed_at };
    Registration { device: device(id, &fields), stamp }
}

/// Every device of the app, sorted.
async fn listed(index: &dyn Index, app: &AppKey) -> Vec<Registration> {
    let mut all = Vec::new();
    for mut range in index.extent(app).await.unwrap() {
        loop {
            let scanned = index.list_registrations(app, range, 7).await.unwrap();
            assert!(scanned.items.len() <= 7 && scanned.unreadable == 0);
            all.extend(scanned.items);
            let Some(next) = scanned.next else { break };
            range.from = next;
        }
    }
    all.sort_by(|a, b| a.device.client_id.cmp(&b.device.client_id));
    all
}

pub(crate) async fn devices_keep_their_times_of_registration(index: &dyn Index) {
    let key = AppKey::first(app());
    let devices: Vec<_> = (0..300).map(|n| at(&format!("c{n:03}"), n)).collect();
    let put = index.put_registrations(&key, &devices).await.unwrap();
    assert!(put.iter().all(|put| *put == Ok(Put::Created)));
    assert_eq!(listed(index, &key).await, devices);
    // A message reaches those that registered before it, and no others.
    let everyone = Targeting::all_devices();
    let reached = scan_all(index, &key, &everyone, UnixMillis(NOW.0 + 99), 50).await;
    assert_eq!(reached.len(), 100);
    // One that is there keeps its registration, and gets the rest.
    let mut again = at("c001", 5001);
    again.device.token = Some("another".into());
    let put = index.put_registrations(&key, std::slice::from_ref(&again)).await.unwrap();
    assert_eq!(put, [Ok(Put::Updated)]);
    let Stamp { registered_at, serial, .. } = devices[1].stamp;
    again.stamp = Stamp { registered_at, serial, ..again.stamp };
    assert_eq!(listed(index, &key).await[1], again);
    assert!(index.put_registrations(&key, &[]).await.unwrap().is_empty());
}

pub(crate) async fn an_app_is_found_only_when_it_has_arrived(index: &dyn Index) {
    let new = record(5, 3);
    assert_eq!(index.arrival(&app()).await.unwrap(), None);
    assert!(!index.finish_arrival(&new, FIRST).await.unwrap(), "it is not on its way");
    assert!(begin(index, &new).await);
    let key = AppKey::from(&new);
    index.put_registrations(&key, &[at("c", 0)]).await.unwrap();
    assert_eq!(index.app(&app()).await.unwrap(), None);
    assert!(index.apps().await.unwrap().is_empty());
    assert!(!index.remove_app(&app()).await.unwrap());
    assert!(!index.create_app(&record(9, 0)).await.unwrap(), "the name is taken");
    let mut later = arrival(&new);
    later.position = Position { shard: 2, slot: 7 };
    assert!(index.save_arrival(&app(), &later).await.unwrap());
    assert_eq!(index.arrival(&app()).await.unwrap(), Some(later));

    assert!(!index.finish_arrival(&record(6, 3), FIRST).await.unwrap(), "another app");
    assert!(!index.finish_arrival(&record(5, 4), FIRST).await.unwrap(), "another generation");
    assert!(index.finish_arrival(&new, FIRST).await.unwrap());
    assert_eq!(index.app(&app()).await.unwrap().as_ref(), Some(&new));
    assert_eq!(index.arrival(&app()).await.unwrap(), None);
    assert_eq!(index.count_devices(&key).await.unwrap(), 1);
    assert!(!index.finish_arrival(&new, FIRST).await.unwrap());
    // It is an app as any other now.
    let put = index.put_devices(&key, &[device("d", &[])], NOW).await.unwrap();
    assert_eq!(put, [Ok(Put::Created)]);
    assert!(index.update_app(&new).await.unwrap());
    assert!(index.remove_app(&app()).await.unwrap());
    assert_eq!(index.removed_apps(&app()).await.unwrap(), 4);
}

pub(crate) async fn an_arrival_replaces_no_app_and_no_other_arrival(index: &dyn Index) {
    let here = record(1, 0);
    assert!(index.create_app(&here).await.unwrap());
    for (created_at, generation) in [(1, 0), (2, 0), (2, 1)] {
        assert!(!begin(index, &record(created_at, generation)).await);
    }
    assert_eq!(index.app(&app()).await.unwrap(), Some(here));
    assert!(index.remove_app(&app()).await.unwrap());
    assert!(!begin(index, &record(2, 0)).await, "the generation of a removed app");
    assert!(begin(index, &record(2, 1)).await);
    assert!(begin(index, &record(2, 1)).await, "the same again");
    assert!(!begin(index, &record(3, 1)).await);
    assert!(!begin(index, &record(2, 2)).await);
    assert_eq!(index.removed_apps(&app()).await.unwrap(), 1);
}

pub(crate) async fn an_app_that_moved_away_can_come_back_to_its_devices(index: &dyn Index) {
    let new = record(1, 0);
    assert!(index.create_app(&new).await.unwrap());
    let key = AppKey::from(&new);
    index.put_registrations(&key, &[at("a", 0), at("b", 0)]).await.unwrap();
    let mut left = new.clone();
    left.leave("elsewhere".to_owned(), NOW);
    assert!(index.update_app(&left).await.unwrap());
    assert!(!begin(index, &record(1, 1)).await, "its devices are those of generation 0");
    assert!(begin(index, &new).await);
    assert_eq!(index.app(&app()).await.unwrap(), None);
    assert!(index.remove_device(&key, &client("a")).await.unwrap());
    let back = left.arrived(0);
    assert!(index.finish_arrival(&back, FIRST).await.unwrap());
    assert_eq!(index.app(&app()).await.unwrap(), Some(back));
    assert_eq!(listed(index, &key).await, [at("b", 0)]);
}

pub(crate) async fn an_arrival_belongs_to_the_attempt_that_began_it_last(index: &dyn Index) {
    let new = record(5, 3);
    assert!(!index.save_arrival(&app(), &arrival(&new)).await.unwrap(), "it is not on its way");
    assert!(begin(index, &new).await);
    let first = Arrival { position: Position { shard: 1, slot: 9 }, ..arrival(&new) };
    assert!(index.save_arrival(&app(), &first).await.unwrap());
    let second = Arrival { attempt: "second".to_owned(), ..first.clone() };
    assert!(!index.save_arrival(&app(), &second).await.unwrap(), "it did not begin");
    assert!(index.begin_arrival(&app(), &second).await.unwrap());
    assert!(!index.save_arrival(&app(), &first).await.unwrap());
    assert!(!index.finish_arrival(&new, FIRST).await.unwrap());
    assert_eq!(index.arrival(&app()).await.unwrap().as_ref(), Some(&second));
    assert_eq!(index.app(&app()).await.unwrap(), None);
    assert!(index.save_arrival(&app(), &second).await.unwrap());
    assert!(index.finish_arrival(&new, "second").await.unwrap());
    assert!(!index.save_arrival(&app(), &second).await.unwrap(), "it is in service");
    assert_eq!(index.app(&app()).await.unwrap(), Some(new));
}
