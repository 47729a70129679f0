//! Registering a device in the file of an embedded store, beside the program that runs on it.

use std::{path::Path, thread};

use push_index::{
    Devices as _,
    sqlite::{SqliteIndex, SqliteIndexSettings},
};
use push_model::{
    app::AppKey, device::DeviceDraft, registration::RegistrationEpoch, time::UnixMillis,
};

/// Registers a device of the first app of this name, if it is not registered, and returns its registration: a token
/// names it. Blocks for some milliseconds.
pub fn registered(data_dir: &Path, app: &str, client: &str) -> RegistrationEpoch {
    let file = data_dir.join("index.sqlite3");
    let app = AppKey::first(app.parse().unwrap());
    let client = client.parse().unwrap();
    // On a thread of its own, because the caller may be inside a runtime.
    let registering = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let index = SqliteIndex::open(&file, "push", SqliteIndexSettings::default()).await;
            let device = DeviceDraft::default().check(client).unwrap().device;
            let now = UnixMillis::now();
            index.unwrap().register(&app, &device.into(), None, now).await.unwrap()
        })
    });
    registering.join().unwrap().unwrap().1
}
