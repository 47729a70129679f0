//! Settings of the SQLite engine.

use std::time::Duration;

use push_sqlite::StoreSettings;

/// Settings of the SQLite engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteQueueSettings {
    /// Time without a heartbeat after which a holder's deliveries are taken back. They are
    /// delivered again within this time and two heartbeats.
    pub lease: Duration,
    /// Interval of heartbeats: several in a lease.
    pub heartbeat: Duration,
    /// The pause between looks of a waiting consumer for messages that other processes have
    /// published, and for delayed messages whose delay is over.
    pub poll: Duration,
    /// The most messages that a consumer claims together.
    pub claim_size: u16,
    /// The pause of a consumer after a failure.
    pub retry_after: Duration,
    /// Settings of the file.
    pub store: StoreSettings,
}

impl Default for SqliteQueueSettings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            heartbeat: Duration::from_secs(3),
            poll: Duration::from_millis(50),
            claim_size: 64,
            retry_after: Duration::from_secs(1),
            store: StoreSettings::default(),
        }
    }
}
