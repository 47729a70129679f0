//! What handlers use: queue, stores, keys, and the accounts' place of trial.

use std::sync::Arc;

use push_boot::{engines::Stores, health::Health};
use push_credentials::SealFile;
use push_index::Index;
use push_ingest::LocalPushes;
use push_model::{app::AppKey, ledger::Retention, time::UnixMillis};
use push_operator::{
    app::trial::Providers,
    device::{self, DeviceCounts},
};
use push_queue::Queue;
use tokio::sync::Mutex;

use crate::access::{Access, Refused};

/// What a program hands to the admin API.
#[derive(Debug)]
pub struct Parts {
    /// The name of the program in the audit trail.
    pub program: &'static str,
    /// The queue.
    pub queue: Arc<dyn Queue>,
    /// Index and ledger.
    pub stores: Stores,
    /// How long the ledger keeps entries.
    pub retention: Retention,
    /// The keys that seal accounts; without them none is set or tried.
    pub seal: Option<Arc<SealFile>>,
    /// The way to providers, for trials of accounts.
    pub providers: Providers,
    /// The parts of this program.
    pub health: Health,
}

/// Everything that is shared by the requests.
#[derive(Debug)]
pub struct Core {
    /// What the program handed over.
    pub parts: Parts,
    /// The keys, and who may do what with them.
    pub access: Access,
    /// Pushes from within this program, and counts of devices.
    pub(crate) pushes: LocalPushes,
    /// The turn to read the dead letters.
    pub(crate) dead_letters: Mutex<()>,
}

impl Core {
    pub(crate) fn new(parts: Parts, pushes: LocalPushes, clock: fn() -> UnixMillis) -> Self {
        let access = Access::new(parts.program, Arc::clone(&parts.stores.index), clock);
        Self { parts, access, pushes, dead_letters: Mutex::new(()) }
    }

    /// The index.
    pub fn index(&self) -> &dyn Index {
        &*self.parts.stores.index
    }

    /// Counts the devices of an app, under the bounds of audiences.
    pub(crate) async fn device_counts(&self, app: &AppKey) -> Result<DeviceCounts, Refused> {
        let counted = self.pushes.count(app, device::counts(self.index(), app)).await;
        Ok(counted.map_err(Refused::NotNow)??)
    }

    /// The queue.
    pub fn queue(&self) -> &dyn Queue {
        &*self.parts.queue
    }
}
