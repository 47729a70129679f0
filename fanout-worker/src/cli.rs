//! The command line of `fanout-worker`, in the library so that `pushctl` makes the manual and the
//! completions from the settings of the program.

use clap::Parser;
use push_boot::{
    build_info, engines::EngineArgs, program::ProgramArgs, seal::SealArgs, tune::TuneArgs,
};
use push_transports::TransportArgs;

use crate::settings::{ProcessArgs, WorkerArgs};

/// Takes accepted pushes from the queue, finds the devices they mean, and delivers.
#[derive(Debug, Parser)]
#[command(
    name = "fanout-worker",
    version = build_info::VERSION,
    long_version = build_info::LONG_VERSION,
    max_term_width = 100
)]
pub struct Cli {
    /// Flags of the worker's own process.
    #[command(flatten)]
    pub process: ProcessArgs,
    /// Queue and index.
    #[command(flatten)]
    pub engines: EngineArgs,
    /// Flags of the transports.
    #[command(flatten)]
    pub transports: TransportArgs,
    /// The keys of accounts at providers.
    #[command(flatten)]
    pub seal: SealArgs,
    /// The work.
    #[command(flatten)]
    pub worker: WorkerArgs,
    /// The constants that are replaced.
    #[command(flatten)]
    pub tune: TuneArgs,
    /// The start, readiness, metrics, log and traces.
    #[command(flatten)]
    pub program: ProgramArgs,
}
