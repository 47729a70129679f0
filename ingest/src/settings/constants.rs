//! The constants of ingest, which `--tune` replaces for tests and experts, and defaults of flags.

use std::{num::NonZeroU32, time::Duration};

use push_boot::{
    proxy_protocol::TrustedProxies,
    tune::{FOUR_WEEKS, HOUR, MOMENT, Tuning},
};
use push_index::REMOVED_APP_REFUSES;

use super::{AppSettings, HttpSettings, PublisherSettings};

/// Bounds of the body of one request, in bytes.
pub(super) const LEAST_BODY: usize = 1 << 10;
pub(super) const MOST_BODY: usize = 64 << 20;
/// The body of a push that names no more client ids than the default of `--max-client-ids`, in bytes.
const MAX_BODY: usize = 512 << 10;
/// The most bytes of a client id in a body: 128 characters, quotation marks and a comma.
const CLIENT_ID: usize = 131;

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_connections_is_given: false,
            max_connections_per_address: None,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(75),
            max_header: 16 << 10,
            max_body: MAX_BODY,
            max_batch_body: 4 << 20,
            max_batch_lines: 1000,
            h2_streams: 256,
            max_buffered: 128 << 20,
            max_buffered_per_app: 32 << 20,
            min_body_rate: 1 << 10,
            trusted_proxies: TrustedProxies::default(),
        }
    }
}

impl HttpSettings {
    /// Returns the constants, or what replaces them. A body always has room for `max_client_ids`
    /// client ids.
    pub fn read(max_client_ids: usize, tuning: &mut Tuning) -> Self {
        let mut all = Self::default();
        all.max_body = all.max_body.max(MAX_BODY / 2 + max_client_ids * CLIENT_ID).min(MOST_BODY);
        tuning.time("header-timeout", &mut all.header_timeout, MOMENT..=HOUR);
        tuning.time("body-timeout", &mut all.body_timeout, MOMENT..=HOUR);
        tuning.time("idle-timeout", &mut all.idle_timeout, MOMENT..=FOUR_WEEKS);
        tuning.size("max-header", &mut all.max_header, 1 << 10..=1 << 20);
        tuning.size("max-body", &mut all.max_body, LEAST_BODY..=MOST_BODY);
        tuning.count("h2-streams", &mut all.h2_streams, 1..=10_000);
        tuning.size("min-body-rate", &mut all.min_body_rate, 0..=1 << 30);
        all
    }
}

impl Default for AppSettings {
    fn default() -> Self {
        Self {
            fresh: Duration::from_secs(3),
            stale: Duration::from_mins(5),
            max_apps: 100_000,
            max_failed_logins: NonZeroU32::new(60),
            max_devices: None,
            max_waiting: None,
            max_ledger_entries: None,
            max_recalls: 1024,
            max_recalls_per_app: 256,
            activity_interval: Duration::from_mins(1),
            index_timeout: Duration::from_secs(2),
        }
    }
}

impl AppSettings {
    /// Returns the constants, or what replaces them.
    pub fn read(tuning: &mut Tuning) -> Self {
        let mut all = Self::default();
        // The index refuses registrations for a removed app only for `REMOVED_APP_REFUSES`. A
        // record that is used for longer would let them in again.
        let longest = REMOVED_APP_REFUSES / 2;
        tuning.time("app-fresh", &mut all.fresh, Duration::ZERO..=longest);
        tuning.time("app-stale", &mut all.stale, Duration::ZERO..=longest);
        tuning.count("max-apps", &mut all.max_apps, 1..=100_000_000);
        tuning.count("recalls", &mut all.max_recalls, 1..=1_000_000);
        tuning.count("recalls-per-app", &mut all.max_recalls_per_app, 1..=1_000_000);
        tuning.time("activity-interval", &mut all.activity_interval, MOMENT..=FOUR_WEEKS);
        tuning.time("index-timeout", &mut all.index_timeout, MOMENT..=HOUR);
        all
    }
}

impl Default for PublisherSettings {
    fn default() -> Self {
        Self {
            batch_jobs: 512,
            batch_bytes: 1 << 20,
            window: 4,
            waiting: 8192,
            timeout: Duration::from_secs(10),
        }
    }
}

impl PublisherSettings {
    /// Returns the constants, or what replaces them.
    pub fn read(tuning: &mut Tuning) -> Self {
        let mut all = Self::default();
        tuning.count("batch-jobs", &mut all.batch_jobs, 1..=65_536);
        tuning.size("batch-bytes", &mut all.batch_bytes, 1 << 10..=64 << 20);
        tuning.count("publish-window", &mut all.window, 1..=1024);
        tuning.count("publish-waiting", &mut all.waiting, 1..=1_000_000);
        tuning.time("publish-timeout", &mut all.timeout, MOMENT..=HOUR);
        all
    }
}
