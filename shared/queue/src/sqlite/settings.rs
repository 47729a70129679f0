//! Settings of the SQLite engine.

use std::time::Duration;

use push_sqlite::StoreSettings;

/// Settings of the SQLite engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteQueueSettings {
    /// How long a holder may send no heartbeat before its deliveries are taken back. They are
    /// delivered again within this time and two heartbeats.
    pub lease: Duration,
    /// Interval of heartbeats: several in a lease.
    pub heartbeat: Duration,
    /// How often a waiting consumer looks for messages that other processes have published, and for
    /// delayed messages whose delay is over.
    pub poll: Duration,
    /// The most messages that a consumer claims at once.
    pub claim_size: u16,
    /// How long a consumer waits after a failure before it tries again.
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
