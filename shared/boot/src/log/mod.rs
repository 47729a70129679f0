//! The log: one line for each event, with its values as fields, on standard error. A value that comes
//! from outside can neither command a terminal nor add a line that looks like an event of its own, nor
//! make a line longer than [`MAX_LINE`].
//!
//! - `outage`: an outage of a server as one event, however many requests fail
//! - `rate_limit`: bounds how often one place in the code is logged
//! - `repeats`: lines that say the same again
//! - `log_pause`: one line a minute for events that clients cause
//! - `audit`: the log of audit events
//! - `failed_logins`: failed logins until they are logged, with their addresses

pub mod audit;
pub mod failed_logins;
pub mod log_pause;
pub mod outage;
mod rate_limit;
mod repeats;

use std::{
    borrow::Cow,
    fmt,
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
};

use serde_json::Value;
use tracing::{
    Level, Metadata,
    field::{Field, Visit},
    level_filters::LevelFilter,
};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    field::{MakeVisitor as _, RecordFields, VisitOutput as _},
    filter::{FilterExt as _, filter_fn},
    fmt::{
        FormatFields,
        format::{DefaultFields, Writer},
    },
    layer::{Filter, SubscriberExt as _},
    util::SubscriberInitExt as _,
};

use self::rate_limit::{Limited, RateLimit};
use crate::{settings, settings::ConfigErrors, terminal, traces::Traces};

/// The log filter of a service for which none is set.
pub const DEFAULT_FILTER: &str = "info";

/// Precedes the configured filter, so that a filter that names these targets overrides this.
/// - Libraries that report single connections are quiet: a client could fill the log. A listener logs
///   failed handshakes itself, at `debug`.
/// - `lapin` logs lost connections as errors; the programs log and replace them by themselves.
/// - A line within a span of a trace says what it is about, however few lines are asked for.
const BASE: &str = "h2=error,rustls=error,lapin=off,push_trace=error";

/// The longest message with its fields, in bytes. Longer ones are cut: what a client sent is part of some.
const MAX_LINE: usize = 8 * 1024;
/// The longest value of a field in a line of JSON that is longer than [`MAX_LINE`], in bytes.
const MAX_VALUE: usize = 1024;
/// Follows what was cut.
const CUT: &str = "… (cut)";

/// The crates and targets whose lines are this service's own, by the beginning of their names.
const OWN: [&str; 5] = ["push_", "pushctl", "ingest", "fanout_worker", audit::TARGET];

/// Returns false for lines that no filter shows: what a library logs below `info` may be whole packets,
/// with the passwords and secrets in them.
fn is_harmless(metadata: &Metadata<'_>) -> bool {
    *metadata.level() <= Level::INFO || OWN.iter().any(|own| metadata.target().starts_with(own))
}

/// Combines the configured filter with [`is_harmless`].
fn shown<S>(filter: EnvFilter) -> impl Filter<S> {
    filter.and(filter_fn(is_harmless).with_max_level_hint(LevelFilter::TRACE))
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines: one JSON object a line.
    Json,
}

settings! {
    /// The flags about the log, before they are checked.
    pub struct LogArgs, "Log, metrics and traces" => LogValues {
        /// Log events of this level, or of several levels by module (`info,push_ingest=debug`)
        log: Option<EnvFilter> = ["FILTER"] filter;
        /// Write log lines as `text` or as `json`
        log_format: LogFormat = ["FORMAT", "text"] format;
    }
}

fn filter(text: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(format!("{BASE},{text}")).map_err(|error| error.to_string())
}

fn format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("must be text or json".to_owned()),
    }
}

/// The checked settings of the log.
#[derive(Debug)]
pub struct LogSettings {
    filter: EnvFilter,
    format: LogFormat,
}

impl LogArgs {
    /// Checks the flags; problems are added to `errors`. `default` is the filter if none is set.
    pub fn check(&self, default: &str, errors: &mut ConfigErrors) -> Option<LogSettings> {
        let LogValues { log, log_format } = self.values(errors)?;
        let filter = log.or_else(|| errors.read("--log", default, filter))?;
        Some(LogSettings { filter, format: log_format })
    }
}

impl LogSettings {
    /// For a command, which logs nothing but what it changed.
    pub fn of_audit(as_json: bool) -> Self {
        let filter = EnvFilter::new(format!("off,{}=info", audit::TARGET));
        Self { filter, format: if as_json { LogFormat::Json } else { LogFormat::Text } }
    }
}

/// Sets up logging for this process, and its traces. A second call has no effect.
pub fn init(settings: LogSettings, traces: &Traces) {
    let log = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        // With them, a line that cannot be written (the disk of the log is full) is a panic of the
        // thread that logs.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    let (filter, limit) = (shown(settings.filter), RateLimit::start());
    let log: Box<dyn Layer<Registry> + Send + Sync> = match settings.format {
        LogFormat::Text => {
            let layer = log.fmt_fields(OneLine);
            Limited { layer, limit }.with_filter(filter).boxed()
        }
        LogFormat::Json => {
            let layer = log.json().flatten_event(true);
            let layer = layer.with_writer(|| HarmlessJson(std::io::stderr()));
            Limited { layer, limit }.with_filter(filter).boxed()
        }
    };
    // Each has a filter of its own: spans of a trace are made whatever the log shows.
    let layers: Vec<_> = traces.layer().into_iter().chain([log]).collect();
    // It can only fail because a subscriber is set already, as in tests.
    let _ = tracing_subscriber::registry().with(layers).try_init();
}

/// Reports on standard error, whatever the log filter, why the program ends.
pub fn failed(why: &str) -> ExitCode {
    // If standard error is closed, the exit code is all that is left to report with.
    let _ = writeln!(std::io::stderr().lock(), "error: {}", terminal::text(why));
    ExitCode::FAILURE
}

/// Escapes in lines of JSON what JSON itself leaves: the controls of Unicode beside those of ASCII. The
/// log hands over each line as a whole.
struct HarmlessJson<W>(W);

impl<W: io::Write> io::Write for HarmlessJson<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let text = if text.len() > MAX_LINE { shortened_json(&text) } else { text };
        self.0.write_all(terminal::json(&text).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A line of JSON whose long values are cut.
fn shortened_json(line: &str) -> Cow<'_, str> {
    let Ok(mut event) = serde_json::from_str::<serde_json::Map<String, Value>>(line) else {
        return Cow::Borrowed(line);
    };
    for value in event.values_mut() {
        if let Value::String(text) = value {
            *text = shortened(text, MAX_VALUE).into_owned();
        }
    }
    Cow::Owned(format!("{}\n", Value::Object(event)))
}

/// Returns the text, cut to at most this many bytes.
fn shortened(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}{CUT}", &text[..text.floor_char_boundary(max)]))
}

/// Writes message and fields of an event so that they stay on its line, the section of the runbook last.
/// Fields that say only how a span looks in a trace are left out.
struct OneLine;

impl<'writer> FormatFields<'writer> for OneLine {
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        let mut text = String::new();
        let mut visitor = DefaultFields::new().make_visitor(Writer::new(&mut text));
        let mut fields_of_log = FieldsOfLog { visitor: &mut visitor, runbook: None };
        fields.record(&mut fields_of_log);
        let runbook = fields_of_log.runbook;
        visitor.finish()?;
        if let Some(anchor) = runbook {
            text.push_str(" runbook=");
            text.push_str(&anchor);
        }
        writer.write_str(&terminal::line(&shortened(&text, MAX_LINE)))
    }
}

/// Passes on all fields but those for traces, and keeps the section of the runbook, which ends the line.
struct FieldsOfLog<'a> {
    visitor: &'a mut dyn Visit,
    runbook: Option<String>,
}

impl Visit for FieldsOfLog<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if !field.name().starts_with("otel.") {
            self.visitor.record_debug(field, value);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "runbook" {
            self.runbook = Some(value.to_owned());
        } else if !field.name().starts_with("otel.") {
            self.visitor.record_str(field, value);
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.visitor.record_error(field, value);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use super::*;

    #[derive(Clone, Default)]
    pub(super) struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Lines {
        pub(super) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_filter_shows_what_a_library_logs_below_info() {
        let lines = Lines::default();
        let writer = lines.clone();
        let filter = EnvFilter::new("trace,lapin=trace,redis=debug,push_queue=trace");
        let log = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
        let log = tracing_subscriber::registry().with(log.with_filter(shown(filter)));
        tracing::subscriber::with_default(log, || {
            tracing::trace!(target: "lapin::channel", "a frame with a password");
            tracing::debug!(target: "redis", "a command with a password");
            tracing::debug!(target: "rustls::client", "a secret of TLS");
            tracing::info!(target: "lapin", "one line of a library");
            tracing::trace!(target: "push_queue::amqp", "two lines of ours");
            tracing::info!(target: "audit", "three lines of audit");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert!(!text.contains("password") && !text.contains("secret"), "{text}");
        for shown in ["one line", "two lines", "three lines"] {
            assert!(text.contains(shown), "{text}");
        }
    }

    #[test]
    fn a_value_in_the_json_log_commands_no_terminal_and_stays_the_same() {
        let lines = Lines::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().json().flatten_event(true);
        let log = log.with_writer(move || HarmlessJson(writer.clone())).finish();
        let name = "a\n\u{1b}[2J\u{9b}2J\u{202e}\u{85}\u{2028}é";
        tracing::subscriber::with_default(log, || tracing::info!(name, "registered"));
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(terminal::text(&text), text);
        assert_eq!(text.lines().count(), 1, "{text:?}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["name"], name);
    }

    #[test]
    fn a_long_value_from_outside_is_cut_in_both_forms() {
        let (lines, json_lines) = (Lines::default(), Lines::default());
        let (writer, json_writer) = (lines.clone(), json_lines.clone());
        let name = "é".repeat(MAX_LINE);
        let text = tracing_subscriber::fmt().fmt_fields(OneLine).with_ansi(false);
        let json = tracing_subscriber::fmt().json().flatten_event(true);
        let json = json.with_writer(move || HarmlessJson(json_writer.clone())).finish();
        let log = || tracing::info!(name, id = 7, "an illegal name");
        tracing::subscriber::with_default(text.with_writer(move || writer.clone()).finish(), log);
        tracing::subscriber::with_default(json, log);
        let (text, json) = (lines.text(), json_lines.text());
        assert!(text.len() < MAX_LINE + 200 && text.contains(CUT), "{}", text.len());
        let event: Value = serde_json::from_str(&json).unwrap();
        assert!(json.len() < 2 * MAX_VALUE && json.ends_with('\n'), "{json}");
        assert_eq!((&event["id"], &event["message"]), (&7.into(), &"an illegal name".into()));
        assert!(event["name"].as_str().unwrap().ends_with(CUT), "{json}");
    }

    #[test]
    fn a_value_from_outside_stays_on_its_line_and_commands_no_terminal() {
        let lines = Lines::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().fmt_fields(OneLine).with_ansi(false);
        tracing::subscriber::with_default(log.with_writer(move || writer.clone()).finish(), || {
            let name = "a\n2026-01-01 ERROR forged\r\u{1b}[2J\u{9b}2J\u{202e}";
            tracing::info!(name, "registered {name}");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text:?}");
        assert!(text.contains("registered") && text.contains("forged"), "{text:?}");
        assert_eq!(terminal::text(&text), text);
    }
}
