//! Logs: one line an event, its values as fields, to standard error.

use std::{
    io::{IsTerminal as _, Write as _},
    process::ExitCode,
};

use tracing_subscriber::EnvFilter;

use crate::settings::Mistakes;

/// The filter of a service that is given none.
pub const USUAL: &str = "info";

/// Libraries that report every connection at `info`; a filter that names them has the last word.
const QUIET: &str = "rmqtt=error,rmqtt_net=error";

/// How logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines: one JSON object a line.
    Json,
}

/// The flags about logs, as they were written.
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

/// Checked settings about logs.
#[derive(Debug)]
pub struct LogSettings {
    filter: EnvFilter,
    format: LogFormat,
}

impl LogArgs {
    /// Checks the flags; what is wrong goes into `mistakes`. `usual` is the filter where none is
    /// given.
    pub fn check(&self, usual: &str, mistakes: &mut Mistakes) -> LogSettings {
        let filter = self.filter.as_deref().unwrap_or(usual);
        let filter = mistakes.take("--log", filter, |text| {
            EnvFilter::try_new(format!("{QUIET},{text}")).map_err(|error| error.to_string())
        });
        let format = mistakes.take("--log-format", &self.format, |text| match text {
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

/// Starts logging for this process. A second call has no effect.
pub fn init(settings: LogSettings) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(settings.filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    // The only failure is that a subscriber is set already, which is a test's.
    let _ = match settings.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// Says in one line on standard error why the program ends, whatever the log filter.
pub fn failed(why: &str) -> ExitCode {
    // A closed standard error leaves only the exit code to tell.
    let _ = writeln!(std::io::stderr().lock(), "error: {why}");
    ExitCode::FAILURE
}
