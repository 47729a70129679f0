//! The benchmarks, one file each, and their names on the command line.
//!
//! - `ingest`: accepting pushes and registrations over HTTP
//! - `index`: loading, memory and targeting of devices
//! - `delivery`: from the queue to the devices

mod delivery;
mod index;
mod ingest;

use std::{panic::AssertUnwindSafe, time::Instant};

use clap::ValueEnum;
use futures::FutureExt;

use self::{
    delivery::{fanout, isolation, mqtt, named, phones, settled, tenants, transports, viewers},
    index::{import, targeting},
    ingest::{batch, latency, registrations, throughput},
};
use crate::{
    report::{Report, Row},
    setup::Environment,
};

/// A benchmark, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Benchmark {
    /// Pushes a second, 256 and 64 connections
    Ingest,
    /// Pushes a second in requests of many
    Batch,
    /// One connection
    Latency,
    /// Loading devices
    Import,
    /// Small pushes from acceptance to settled
    Settled,
    /// Pushes to a thousand named devices
    Named,
    /// Devices that register one by one
    Registrations,
    /// Redis memory of a device
    IndexMemory,
    /// Three criteria over all devices
    Targeting,
    /// A broadcast that is discarded
    Fanout,
    /// A broadcast over MQTT
    Mqtt,
    /// One-device pushes during a broadcast
    Isolation,
    /// Another app's broadcast during a broadcast
    Fairness,
    /// One-device pushes while another app does its worst
    Tenants,
    /// One-device pushes, and requests to the stores, while many watch the console
    Viewers,
    /// A broadcast while one of two transports is slow, silent or dead
    Transports,
    /// Broadcasts over FCM and Web Push
    Phones,
    /// Resident memory of the programs
    Memory,
}

impl Benchmark {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Batch => "batch",
            Self::Latency => "latency",
            Self::Import => "import",
            Self::Settled => "settled",
            Self::Named => "named",
            Self::Registrations => "registrations",
            Self::IndexMemory => "index-memory",
            Self::Targeting => "targeting",
            Self::Fanout => "fanout",
            Self::Mqtt => "mqtt",
            Self::Isolation => "isolation",
            Self::Fairness => "fairness",
            Self::Tenants => "tenants",
            Self::Viewers => "viewers",
            Self::Transports => "transports",
            Self::Phones => "phones",
            Self::Memory => "memory",
        }
    }

    async fn rows(self, env: &Environment) -> anyhow::Result<Vec<Row>> {
        match self {
            Self::Ingest => throughput::run(env).await,
            Self::Batch => batch::run(env).await,
            Self::Latency => latency::run(env).await,
            Self::Import => import::speed(env).await,
            Self::Settled => settled::run(env).await,
            Self::Named => named::run(env).await,
            Self::Registrations => registrations::run(env).await,
            Self::IndexMemory => import::memory(env).await,
            Self::Targeting => targeting::run(env).await,
            Self::Fanout => fanout::run(env).await,
            Self::Mqtt => mqtt::run(env).await,
            Self::Isolation => isolation::one_device(env).await,
            Self::Fairness => isolation::other_app(env).await,
            Self::Tenants => tenants::run(env).await,
            Self::Viewers => viewers::run(env).await,
            Self::Transports => transports::run(env).await,
            Self::Phones => phones::run(env).await,
            Self::Memory => fanout::memory(env).await,
        }
    }

    /// Runs to its end. A panic of the harness fails this benchmark alone.
    pub(crate) async fn run(self, env: &Environment) -> Report {
        let started = Instant::now();
        let rows = AssertUnwindSafe(self.rows(env)).catch_unwind().await;
        let (rows, broken) = match rows {
            Ok(Ok(rows)) => (rows, None),
            Ok(Err(error)) => (Vec::new(), Some(format!("{error:#}"))),
            Err(_) => (Vec::new(), Some("it panicked, see above".to_owned())),
        };
        Report { benchmark: self.name(), rows, broken, seconds: started.elapsed().as_secs_f64() }
    }
}
