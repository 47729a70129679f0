//! The command line of `ingest`, in the library so that `pushctl` makes the manual and the completions from
//! the settings of the program.

use clap::Parser;
use push_boot::{
    build_info, credentials::CredentialArgs, engines::EngineArgs, program::ProgramArgs,
    proxy_protocol::ProxyArgs, settings::over_mqtt::OverMqttArgs, tune::TuneArgs,
};

use crate::settings::IngestArgs;

/// Takes pushes over HTTP, checks them, and answers once the queue has them.
#[derive(Debug, Parser)]
#[command(
    name = "ingest",
    version = build_info::VERSION,
    long_version = build_info::LONG_VERSION,
    max_term_width = 100
)]
pub struct Cli {
    /// The HTTP service.
    #[command(flatten)]
    pub ingest: IngestArgs,
    /// The proxies in front.
    #[command(flatten)]
    pub proxies: ProxyArgs,
    /// Queue and index.
    #[command(flatten)]
    pub engines: EngineArgs,
    /// The transport of most devices.
    #[command(flatten)]
    pub over_mqtt: OverMqttArgs,
    /// The keys of devices.
    #[command(flatten)]
    pub credentials: CredentialArgs,
    /// The constants that are replaced.
    #[command(flatten)]
    pub tune: TuneArgs,
    /// The start, readiness, metrics, log and traces.
    #[command(flatten)]
    pub program: ProgramArgs,
}
