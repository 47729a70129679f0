//! `tests/bench`: every figure that the design has a target for, beside its ceiling.
//!
//! A ceiling is measured in the same run and, wherever both can be repeated, in turn with the
//! figure; what counts is the median of the rounds' ratios, because machines are noisy and
//! differ. Nothing here fails because a machine is slow: a benchmark is broken only by an error
//! answer or a wrong count.
//!
//! Everything starts with servers of its own and ends by itself, as the tests do.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is a command-line tool")]

mod arrivals;
mod bare_server;
mod batch;
mod crowd;
mod device;
mod fanout;
mod finished;
mod growth;
mod history;
mod import;
mod ingest;
mod ingest_alone;
mod isolation;
mod latency;
mod load;
mod mqtt;
mod named;
mod paced;
mod processor;
mod raw_client;
mod registrations;
mod report;
mod scaling;
mod settled;
mod sizes;
mod targeting;
mod workers;
mod world;
mod wrk;

use std::{
    net::SocketAddr, panic::AssertUnwindSafe, path::PathBuf, process::ExitCode, time::Instant,
};

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use futures::FutureExt;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::{
    ingest_alone::IngestAlone,
    raw_client::RawClient,
    report::{Report, Row, print_table},
    sizes::Sizes,
    world::World,
};

/// Measures the service beside what the machine can do.
#[derive(Debug, Parser)]
#[command(name = "tests/bench")]
struct Cli {
    /// Smaller, in under ten minutes
    #[arg(long)]
    quick: bool,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only these benchmarks
    #[arg(value_name = "NAME")]
    only: Vec<Benchmark>,
    /// Be the bare server that `ingest` is compared with
    #[arg(long, hide = true)]
    bare_server: Option<SocketAddr>,
    #[command(flatten)]
    ingest_alone: IngestAlone,
    #[command(flatten)]
    raw_client: RawClient,
}

/// In the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Benchmark {
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
    /// More workers on a Redis Cluster
    Growth,
    /// Millions of finished pushes in the ledger
    History,
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
    /// Workers with a slow provider
    Scaling,
    /// Resident memory of the programs
    Memory,
}

impl Benchmark {
    const fn name(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Batch => "batch",
            Self::Latency => "latency",
            Self::Import => "import",
            Self::Settled => "settled",
            Self::Named => "named",
            Self::Registrations => "registrations",
            Self::Growth => "growth",
            Self::History => "history",
            Self::IndexMemory => "index-memory",
            Self::Targeting => "targeting",
            Self::Fanout => "fanout",
            Self::Mqtt => "mqtt",
            Self::Isolation => "isolation",
            Self::Fairness => "fairness",
            Self::Scaling => "scaling",
            Self::Memory => "memory",
        }
    }

    async fn rows(self, world: &World) -> anyhow::Result<Vec<Row>> {
        match self {
            Self::Ingest => ingest::run(world).await,
            Self::Batch => batch::run(world).await,
            Self::Latency => latency::run(world).await,
            Self::Import => import::speed(world).await,
            Self::Settled => settled::run(world).await,
            Self::Named => named::run(world).await,
            Self::Registrations => registrations::run(world).await,
            Self::Growth => growth::run(world).await,
            Self::History => history::run(world).await,
            Self::IndexMemory => import::memory(world).await,
            Self::Targeting => targeting::run(world).await,
            Self::Fanout => fanout::run(world).await,
            Self::Mqtt => mqtt::run(world).await,
            Self::Isolation => isolation::one_device(world).await,
            Self::Fairness => isolation::other_app(world).await,
            Self::Scaling => scaling::run(world).await,
            Self::Memory => fanout::memory(world).await,
        }
    }

    /// Runs to its end. A panic of the harness breaks this benchmark alone.
    async fn run(self, world: &World) -> Report {
        let started = Instant::now();
        let rows = AssertUnwindSafe(self.rows(world)).catch_unwind().await;
        let (rows, broken) = match rows {
            Ok(Ok(rows)) => (rows, None),
            Ok(Err(error)) => (Vec::new(), Some(format!("{error:#}"))),
            Err(_) => (Vec::new(), Some("it panicked, see above".to_owned())),
        };
        Report { benchmark: self.name(), rows, broken, seconds: started.elapsed().as_secs_f64() }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let other = cli.bare_server.map(bare_server::run);
    let other = other.or_else(|| cli.ingest_alone.run()).or_else(|| cli.raw_client.run());
    let outcome = other.unwrap_or_else(|| {
        Runtime::new().map_err(Into::into).and_then(|runtime| runtime.block_on(measure(cli)))
    });
    outcome.unwrap_or_else(|error| {
        eprintln!("tests/bench: {error:#}");
        ExitCode::FAILURE
    })
}

async fn measure(cli: Cli) -> anyhow::Result<ExitCode> {
    let sizes = if cli.quick { Sizes::quick() } else { Sizes::full() };
    let world = World::new(sizes);
    let mut reports = Vec::new();
    for &benchmark in Benchmark::value_variants() {
        if !cli.only.is_empty() && !cli.only.contains(&benchmark) {
            continue;
        }
        println!("{}", benchmark.name());
        let report = benchmark.run(&world).await;
        report.rows.iter().for_each(Row::print);
        if let Some(why) = &report.broken {
            println!("  BROKEN: {why}");
        }
        println!("  took {:.0} s", report.seconds);
        reports.push(report);
    }
    print_table(&reports);
    if let Some(file) = cli.json {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let all = json!({ "quick": cli.quick, "cores": cores, "benchmarks": reports });
        std::fs::write(&file, serde_json::to_vec_pretty(&all)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    let broken = reports.iter().any(|report| report.broken.is_some());
    Ok(if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
