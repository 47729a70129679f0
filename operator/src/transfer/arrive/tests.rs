//! Takes apps whose devices change, get lost or cannot be read meanwhile, to a store in a file.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use push_index::{
    Apps as _, Devices as _, Transfer as _,
    sqlite::{SqliteIndex, SqliteIndexSettings},
};
use push_model::{
    attributes::Attributes,
    device::Device,
    registration::{Serial, Stamp},
    secret::Secret,
    time::UnixMillis,
};
use tempfile::TempDir;

use super::*;
use crate::transfer::source::Batch;

/// Devices of a batch of the source.
const BATCH: usize = 10;

/// A source whose devices change when it is read from its beginning.
struct Changing {
    devices: Mutex<Vec<Registration>>,
    /// The number of times it was read from its beginning.
    passes: AtomicUsize,
    change: fn(usize, &mut Vec<Registration>),
    unreadable: u64,
    fails_at: Option<u32>,
}

impl Changing {
    fn new(count: usize, change: fn(usize, &mut Vec<Registration>)) -> Self {
        let devices = Mutex::new((0..count).map(registration).collect());
        Self { devices, passes: AtomicUsize::new(0), change, unreadable: 0, fails_at: None }
    }

    fn stable(count: usize) -> Self {
        Self::new(count, |_, _| ())
    }
}

#[async_trait]
impl Source for Changing {
    fn count(&self) -> u64 {
        self.devices.lock().unwrap().len() as u64
    }

    async fn batch(&self, from: Position) -> anyhow::Result<Batch> {
        ensure!(self.fails_at != Some(from.slot), "the source does not answer");
        let mut devices = self.devices.lock().unwrap();
        let mut unreadable = 0;
        if from == Position::default() {
            (self.change)(self.passes.fetch_add(1, Ordering::Relaxed), &mut devices);
            unreadable = self.unreadable;
        }
        let first = from.slot as usize;
        let batch: Vec<_> = devices.iter().skip(first).take(BATCH).cloned().collect();
        let slot = from.slot + BATCH as u32;
        let next = (first + BATCH < devices.len()).then_some(Position { shard: 0, slot });
        Ok(Batch { devices: batch, unreadable, next })
    }
}

fn registration(n: usize) -> Registration {
    let device = Device {
        profile: push_model::profile::Profile::default(),
        client_id: format!("c{n}").parse().unwrap(),
        attributes: Attributes::default(),
        transport: push_model::device::TransportKind::Discard,
        token: None,
    };
    Registration { device, stamp: Stamp::new(UnixMillis(n as u64), Serial::of(n as u64)) }
}

struct Target {
    index: SqliteIndex,
    app: App,
    _folder: TempDir,
}

impl Target {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("index.sqlite3");
        let index = SqliteIndex::open(&file, "push", SqliteIndexSettings::default()).await.unwrap();
        let app = App::new("news".parse().unwrap(), &Secret::generate(), UnixMillis(1));
        Self { index, app, _folder: folder }
    }

    async fn take(&self, source: &Changing, skip_unreadable: bool) -> anyhow::Result<Arrived> {
        let id = &self.app.app_id;
        let begun = Arrival {
            created_at: self.app.created_at,
            generation: 0,
            origin: "a test".to_owned(),
            attempt: String::new(),
            begun_at: UnixMillis(2),
            position: Position::default(),
        };
        let arrival = self.index.arrival(id).await?.unwrap_or(begun);
        let arrival = begin(&self.index, id, arrival).await?.unwrap();
        self.go_on(source, arrival, skip_unreadable).await
    }

    /// Runs an attempt that has begun.
    async fn go_on(
        &self,
        source: &Changing,
        arrival: Arrival,
        skip_unreadable: bool,
    ) -> anyhow::Result<Arrived> {
        let (target, app) = (&self.index, self.app.clone());
        let arriving =
            Arriving { target, source, app, arrival, skip_unreadable, observer: &|_| {} };
        arriving.run(async || Ok(())).await
    }

    async fn is_in_service(&self) -> bool {
        self.index.app(&self.app.app_id).await.unwrap().is_some()
    }

    async fn devices(&self) -> u64 {
        self.index.count_devices(&AppKey::from(&self.app)).await.unwrap()
    }
}

#[tokio::test]
async fn an_app_is_in_service_with_all_its_devices_or_not_at_all() {
    let target = Target::new().await;
    let mut source = Changing { fails_at: Some(60), ..Changing::stable(100) };
    target.take(&source, false).await.unwrap_err();
    assert!(!target.is_in_service().await && target.devices().await > 0);
    source.fails_at = None;
    let arrived = target.take(&source, false).await.unwrap();
    assert_eq!(arrived, Arrived { devices: 100, copied: 50, repaired: 0, left_out: 0 });
    assert!(target.is_in_service().await);
}

#[tokio::test]
async fn what_changes_while_it_is_copied_is_repaired() {
    let target = Target::new().await;
    // After the copy: one device goes, one comes, one is registered anew.
    let source = Changing::new(100, |pass, devices| {
        if pass == 1 {
            devices.remove(3);
            devices[5].stamp = Stamp::new(UnixMillis(7777), Serial::of(7777));
            devices.push(registration(500));
        }
    });
    let arrived = target.take(&source, false).await.unwrap();
    assert_eq!(arrived, Arrived { devices: 100, copied: 100, repaired: 3, left_out: 0 });
}

#[tokio::test]
async fn what_the_target_has_lost_of_an_earlier_attempt_is_stored_again() {
    let target = Target::new().await;
    let mut source = Changing { fails_at: Some(60), ..Changing::stable(100) };
    target.take(&source, false).await.unwrap_err();
    let key = AppKey::from(&target.app);
    for lost in ["c1", "c2", "c30"] {
        assert!(target.index.remove_device(&key, &lost.parse().unwrap()).await.unwrap());
    }
    source.fails_at = None;
    let arrived = target.take(&source, false).await.unwrap();
    assert_eq!((arrived.devices, arrived.repaired), (100, 3));
}

#[tokio::test]
async fn a_source_that_never_stays_as_it_is_ends_in_an_error_and_the_app_is_not_in_service() {
    let target = Target::new().await;
    let source = Changing::new(100, |pass, devices| devices.push(registration(1000 + pass)));
    let error = target.take(&source, false).await.unwrap_err().to_string();
    assert!(error.contains("differ after they were copied and repaired"), "{error}");
    assert!(!target.is_in_service().await);
}

#[tokio::test]
async fn devices_that_cannot_be_read_are_left_out_only_if_the_operator_says_so() {
    let target = Target::new().await;
    let source = Changing { unreadable: 2, ..Changing::stable(20) };
    let error = target.take(&source, false).await.unwrap_err().to_string();
    assert!(error.contains("--skip-unreadable"), "{error}");
    assert!(!target.is_in_service().await);
    let arrived = target.take(&source, true).await.unwrap();
    assert_eq!((arrived.devices, arrived.left_out), (20, 2));
    assert!(target.is_in_service().await);
}

#[tokio::test]
async fn an_attempt_that_was_superseded_neither_ends_nor_removes_what_is_new() {
    let target = Target::new().await;
    let mut failing = Changing { fails_at: Some(0), ..Changing::stable(BATCH) };
    target.take(&failing, false).await.unwrap_err();
    let id = &target.app.app_id;
    let superseded = target.index.arrival(id).await.unwrap().unwrap();
    // A later attempt has begun, and has not ended.
    begin(&target.index, id, superseded.clone()).await.unwrap().unwrap();
    failing.fails_at = None;
    let error = target.go_on(&failing, superseded.clone(), false).await.unwrap_err().to_string();
    assert!(error.contains("has taken this over"), "{error}");
    assert!(!target.is_in_service().await);

    // It has ended, and a device has registered since.
    target.take(&failing, false).await.unwrap();
    let key = AppKey::from(&target.app);
    let new = registration(777).device;
    target.index.put_devices(&key, std::slice::from_ref(&new), UnixMillis(9)).await.unwrap();
    let error = target.go_on(&failing, superseded, false).await.unwrap_err().to_string();
    assert!(error.contains("has taken this over"), "{error}");
    assert_eq!(target.index.device(&key, &new.client_id).await.unwrap(), Some(new));
}

#[tokio::test]
async fn an_app_that_is_not_ready_is_not_put_in_service() {
    let target = Target::new().await;
    let source = Changing::stable(BATCH);
    let begun = Arrival {
        created_at: target.app.created_at,
        generation: 0,
        origin: "a test".to_owned(),
        attempt: String::new(),
        begun_at: UnixMillis(2),
        position: Position::default(),
    };
    let arrival = begin(&target.index, &target.app.app_id, begun).await.unwrap().unwrap();
    let app = target.app.clone();
    let arriving = Arriving {
        target: &target.index,
        source: &source,
        app,
        arrival,
        skip_unreadable: false,
        observer: &|_| {},
    };
    arriving.run(async || bail!("not now")).await.unwrap_err();
    assert!(!target.is_in_service().await);
    target.take(&source, false).await.unwrap();
    assert!(target.is_in_service().await);
}
