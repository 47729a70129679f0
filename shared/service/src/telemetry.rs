//! The log: one line for each event, with its values as fields, on standard error.

use std::{
    io::{IsTerminal as _, Write as _},
    process::ExitCode,
};

use tracing_subscriber::EnvFilter;

use crate::settings::ConfigErrors;

/// The log filter of a service for which none is set.
pub const DEFAULT_FILTER: &str = "info";

/// Quiets libraries that report single connections: a client could fill the log. The configured
/// filter is appended, so that a filter that names them overrides this.
const QUIET: &str = "rmqtt=error,rmqtt_net=error,h2=error";

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines: one JSON object a line.
    Json,
}

/// The flags about the log, before they are checked.
#[derive(Debug, Clone, clap::Args)]
pub struct LogArgs {
    /// What is logged: a level, or levels by module (`info,push_ingest=debug`)
    #[arg(long = "log", env = "PUSH_LOG", value_name = "FILTER")]
    filter: Option<String>,
    /// `text` or `json`
    #[arg(
        long = "log-format",
        env = "PUSH_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text"
    )]
    format: String,
}

/// The checked settings of the log.
#[derive(Debug)]
pub struct LogSettings {
    filter: EnvFilter,
    format: LogFormat,
}

impl LogArgs {
    /// Checks the flags; problems are added to `errors`. `default` is the filter if none is set.
    pub fn check(&self, default: &str, errors: &mut ConfigErrors) -> LogSettings {
        let filter = self.filter.as_deref().unwrap_or(default);
        let filter = errors.read("--log", filter, |text| {
            EnvFilter::try_new(format!("{QUIET},{text}")).map_err(|error| error.to_string())
        });
        let format = errors.read("--log-format", &self.format, |text| match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err("must be text or json".to_owned()),
        });
        LogSettings {
            filter: filter.unwrap_or_default(),
            format: format.unwrap_or(LogFormat::Text),
        }
    }
}

/// Sets up logging for this process. A second call has no effect.
pub fn init(settings: LogSettings) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(settings.filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    // It can only fail because a subscriber is set already, as in tests.
    let _ = match settings.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// Reports on standard error, whatever the log filter, why the program ends.
pub fn failed(why: &str) -> ExitCode {
    // If standard error is closed, the exit code is all that is left to report with.
    let _ = writeln!(std::io::stderr().lock(), "error: {why}");
    ExitCode::FAILURE
}
