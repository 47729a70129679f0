//! The sizes of a run: all benchmarks take a quarter of an hour with [`Sizes::quick`], and about 55
//! with [`Sizes::full`].

use std::time::Duration;

/// The sizes of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Rounds, in each of which a figure and its ceiling are measured in turn.
    pub(crate) rounds: usize,
    /// Time for which `ingest` is loaded in one round.
    pub(crate) load: Duration,
    /// Sequential pushes of one round over one connection.
    pub(crate) sequential: usize,
    /// Devices of the smaller app, on MQTT.
    pub(crate) small: usize,
    /// Devices of the larger app, on `discard`.
    pub(crate) big: usize,
    /// Devices of another app, whose broadcast runs during one of the larger app.
    pub(crate) other: usize,
    /// One-device pushes of one round while a broadcast runs.
    pub(crate) isolated: usize,
    /// Broadcasts of the other app in one round.
    pub(crate) fair: usize,
    /// Pushes of one round that name a thousand devices each.
    pub(crate) named: usize,
    /// Devices of the app before more are registered.
    pub(crate) registered: usize,
    /// Devices of the app whose provider is FCM.
    pub(crate) phones: usize,
    /// Devices of the app whose devices are browsers.
    pub(crate) browsers: usize,
    /// Raw writes to Redis, the ceiling of the import.
    pub(crate) raw_writes: usize,
}

impl Sizes {
    pub(crate) const fn quick() -> Self {
        Self {
            rounds: 3,
            load: Duration::from_secs(3),
            sequential: 300,
            small: 200_000,
            big: 1_000_000,
            other: 10_000,
            isolated: 300,
            fair: 8,
            named: 300,
            registered: 200_000,
            phones: 100_000,
            browsers: 20_000,
            raw_writes: 200_000,
        }
    }

    pub(crate) const fn full() -> Self {
        Self {
            rounds: 5,
            load: Duration::from_secs(10),
            sequential: 1000,
            small: 1_000_000,
            big: 10_000_000,
            other: 10_000,
            isolated: 1000,
            fair: 30,
            named: 2000,
            registered: 1_000_000,
            phones: 500_000,
            browsers: 100_000,
            raw_writes: 1_000_000,
        }
    }
}
