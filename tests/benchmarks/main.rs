//! `tests/bench`: every figure that the design has a target for, beside its ceiling.
//!
//! A ceiling is measured in the same run and, where both can be repeated, in turn with the figure.
//! The ratio of the two is the median of the rounds' ratios, because machines differ and are noisy.
//! A slow machine fails no benchmark: only an error answer or a wrong count does.
//!
//! Every run starts servers of its own and stops them at its end, as the tests do.
//!
//! - `bench`: the benchmarks, one file each
//! - `setup`: what they run against; `load`: what they send; `ceiling`: what they are compared with
//! - `measure`, `report`: how results are measured and printed

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is a command-line tool")]

mod bench;
mod ceiling;
mod load;
mod measure;
mod report;
mod setup;

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::{
    bench::Benchmark,
    ceiling::{
        bare_server, ingest_alone::IngestAlone, raw_http2_client::RawHttp2Client,
        raw_mqtt_client::RawMqttClient,
    },
    load::embedded_broker::EmbeddedBrokerArgs,
    report::{Row, print_table},
    setup::{Environment, Sizes},
};

/// Measures the service beside what the machine can do.
#[derive(Debug, Parser)]
#[command(name = "tests/bench")]
struct Cli {
    /// Smaller, in a quarter of an hour
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
    raw_client: RawMqttClient,
    #[command(flatten)]
    raw_http2_client: RawHttp2Client,
    #[command(flatten)]
    embedded_broker: EmbeddedBrokerArgs,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // With one of the hidden flags this process is a program that a figure is compared with.
    let peer = cli.bare_server.map(bare_server::run);
    let peer = peer.or_else(|| cli.ingest_alone.run()).or_else(|| cli.raw_client.run());
    let peer = peer.or_else(|| cli.raw_http2_client.run());
    let peer = peer.or_else(|| cli.embedded_broker.run());
    let outcome = peer.unwrap_or_else(|| {
        Runtime::new().map_err(Into::into).and_then(|runtime| runtime.block_on(measure(cli)))
    });
    outcome.unwrap_or_else(|error| {
        eprintln!("tests/bench: {error:#}");
        ExitCode::FAILURE
    })
}

async fn measure(cli: Cli) -> anyhow::Result<ExitCode> {
    let sizes = if cli.quick { Sizes::quick() } else { Sizes::full() };
    let env = Environment::new(sizes);
    let mut reports = Vec::new();
    for &benchmark in Benchmark::value_variants() {
        if !cli.only.is_empty() && !cli.only.contains(&benchmark) {
            continue;
        }
        println!("{}", benchmark.name());
        let report = benchmark.run(&env).await;
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
