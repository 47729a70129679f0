//! Tests that are specific to this engine: slots and their reuse, reopening and sharing a file, and that
//! targeting by codes equals the shared definition. The promises of every engine are tested in
//! `tests/suites/index`.

mod file;
mod profiles;
mod slots;
mod targeting;

use std::path::PathBuf;

use push_model::{
    app::{App, AppKey},
    attributes::{Attribute, Attributes},
    device::{Device, TargetFields, TransportKind},
    ids::AppId,
    secret::Secret,
    slots::SlotRange,
    targeting::Targeting,
    time::UnixMillis,
};
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::{Apps, Devices, Put, PutRefused, Selection};

const T0: UnixMillis = UnixMillis(1_000);

fn file(dir: &TempDir) -> PathBuf {
    dir.path().join("index.sqlite3")
}

async fn open(dir: &TempDir) -> SqliteIndex {
    open_with(dir, SqliteIndexSettings::default()).await
}

async fn open_with(dir: &TempDir, settings: SqliteIndexSettings) -> SqliteIndex {
    SqliteIndex::open(&file(dir), "test", settings).await.unwrap()
}

fn app() -> AppId {
    "app".parse().unwrap()
}

fn key() -> AppKey {
    AppKey::first(app())
}

fn device(id: &str, values: &[(Attribute, &str)]) -> Device {
    let mut attributes = Attributes::default();
    for (attribute, value) in values {
        attributes.set(*attribute, value).unwrap();
    }
    let client_id = id.parse().unwrap();
    Device {
        client_id,
        attributes,
        transport: TransportKind::Mqtt,
        token: None,
        profile: push_model::profile::Profile::default(),
    }
}

async fn put(index: &SqliteIndex, id: &str, now: UnixMillis) -> Result<Put, PutRefused> {
    index.put_devices(&key(), &[device(id, &[])], now).await.unwrap().remove(0)
}

/// All devices that were registered by then, read a few at a time.
async fn all_registered_by(index: &SqliteIndex, registered_by: UnixMillis) -> Vec<String> {
    let mut ids = Vec::new();
    for range in index.extent(&key()).await.unwrap() {
        let mut from = Some(range.from);
        while let Some(at) = from {
            let rest = SlotRange { from: at, ..range };
            let scanned = index
                .scan(
                    &key(),
                    rest,
                    Selection {
                        carrier: TransportKind::Mqtt.into(),
                        targeting: &Targeting::all_devices(),
                        registered_by,
                    },
                    TargetFields::Address,
                    2,
                )
                .await
                .unwrap();
            ids.extend(scanned.items.into_iter().map(|target| target.client_id.to_string()));
            from = scanned.next;
        }
    }
    ids
}
