//! `pushctl push`: sends one push, from flags or from a file, or with `--batch` a file of them,
//! through the HTTP endpoint as a backend would.
//!
//! - `compose`: a push made from flags; `recipients`: who gets it
//! - `batch`: a file of pushes
//! - `audience`: counts the devices that a push would target

pub mod audience;
mod batch;
mod compose;
mod recipients;

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use push_boot::{
    settings::{count, size_between},
    terminal,
};
use push_model::ids::AppId;
use serde_json::Value;

pub(crate) use self::recipients::RecipientArgs;
use self::{
    batch::{BatchRequestOptions, Limits},
    compose::ComposeArgs,
};
use crate::{
    input,
    message::{self, Following, Source},
    output::Output,
    server::ServerArgs,
};

/// The most bytes that are read of the file of a single push.
const MAX_BYTES: u64 = 4 * 1024 * 1024;
/// The bounds of ingest's own settings for one request, in lines and in bytes.
const MAX_LINES: usize = 100_000;
const MIN_BODY: usize = 1024;
const MAX_BODY: usize = 64 * 1024 * 1024;

/// Flags of `push`.
#[derive(Debug, clap::Args)]
pub struct PushArgs {
    /// The app
    app_id: AppId,
    /// The request body as JSON, in place of the flags; - for standard input
    file: Option<PathBuf>,
    #[command(flatten)]
    compose: ComposeArgs,
    /// Check everything, and send nothing
    #[arg(long)]
    dry_run: bool,
    /// Follow the message until it is closed; then show its ledger
    #[arg(long)]
    watch: bool,
    /// Take unknown fields, which have no effect, instead of refusing them
    #[arg(long)]
    lenient: bool,
    /// Make a retry safe: the same key is the same message
    #[arg(long, value_name = "KEY", conflicts_with = "batch")]
    idempotency_key: Option<String>,
    /// Send many pushes: FILE is NDJSON, a request body a line, which may have an idempotency_key
    #[arg(long)]
    batch: bool,
    /// Pushes in one batch request, at most: no more than ingest takes
    #[arg(
        long,
        env = "PUSH_MAX_BATCH_LINES",
        value_name = "N",
        default_value = "1000",
        value_parser = lines
    )]
    max_batch_lines: usize,
    /// The largest batch request: no larger than ingest takes
    #[arg(
        long,
        env = "PUSH_MAX_BATCH_BODY",
        value_name = "SIZE",
        default_value = "4MiB",
        value_parser = body
    )]
    max_batch_body: usize,
    /// Write the outcome of each push to this file, as NDJSON
    #[arg(long, value_name = "FILE", requires = "batch")]
    answers: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
}

fn lines(text: &str) -> Result<usize, String> {
    count(1, MAX_LINES)(text)
}

fn body(text: &str) -> Result<usize, String> {
    size_between(MIN_BODY, MAX_BODY)(text)
}

/// Sends the push, or all of them, and prints the answer.
///
/// # Errors
/// If the flags contradict each other, the file cannot be read, the server does not answer, or refuses
/// a push; or with `--watch`, if no device was reached.
pub async fn run(args: PushArgs, out: Output) -> anyhow::Result<()> {
    args.check()?;
    if args.batch {
        let client = args.server.client(&args.app_id, out)?.strict(!args.lenient);
        let limits = Limits { lines: args.max_batch_lines, body: args.max_batch_body };
        let file = args.file.context("name the FILE with the pushes, or - for standard input")?;
        let options = BatchRequestOptions { file, limits, answers: args.answers };
        return batch::run(options, client, out).await;
    }
    let composed = match &args.file {
        Some(_) => None,
        None => Some(args.compose.body().map_err(anyhow::Error::msg)?),
    };
    let client = args.server.client(&args.app_id, out)?.strict(!args.lenient);
    let body = match composed {
        Some(body) => serde_json::to_vec(&body)?,
        None => read_body(args.file.as_deref().unwrap_or(Path::new("-")))?,
    };
    let body = if args.dry_run { as_dry_run(&body)? } else { body };
    let sender = client.clone();
    let send = move || sender.push(args.idempotency_key.as_deref(), &body);
    let mut answer = tokio::task::spawn_blocking(send).await??;
    let status = answer.get("status").and_then(Value::as_u64);
    if status != Some(200) {
        let message = answer.get("message").and_then(Value::as_str).unwrap_or("no message");
        let (status, message) = (status.unwrap_or_default(), terminal::line(message));
        bail!("refused with {status}: {message}{}", client.next_step(status));
    }
    let warnings = answer.pointer("/result/warnings").and_then(Value::as_array);
    for warning in warnings.into_iter().flatten().filter_map(Value::as_str) {
        out.note(format_args!("warning: {}", terminal::line(warning)));
    }
    let id = answer.pointer("/result/message_id").and_then(Value::as_str).unwrap_or_default();
    if args.watch {
        let following = Following::accepted(id.parse().context("the server gave no message id")?);
        return message::follow(following, &args.app_id, &Source::Server(client), out).await;
    }
    let text = if args.dry_run { "valid, nothing was sent" } else { "accepted" };
    let text = format!("{text}  {id}");
    if let (true, Some(fields)) = (args.dry_run, answer.as_object_mut()) {
        fields.insert("dry_run".to_owned(), Value::Bool(true));
    }
    out.result(text, &answer)
}

impl PushArgs {
    /// Refuses flags of which one would have no effect.
    fn check(&self) -> anyhow::Result<()> {
        let composing = self.compose.given();
        if let (true, Some(flag)) = (self.batch, composing.first()) {
            bail!("--batch sends the pushes of FILE as they are: leave out {flag}, or --batch");
        }
        if let (Some(_), Some(flag)) = (&self.file, composing.first()) {
            bail!("FILE is the whole request: leave out {flag}, or FILE");
        }
        ensure!(
            !(self.batch && self.dry_run),
            "--dry-run is for a single push: in a batch, each line says it in its field dry_run"
        );
        ensure!(!(self.batch && self.watch), "--watch follows a single message: leave out --batch");
        ensure!(
            !(self.dry_run && self.watch),
            "--dry-run sends nothing, so --watch would have nothing to follow: leave out one of them"
        );
        Ok(())
    }
}

/// Makes a request one that sends nothing.
fn as_dry_run(body: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut body: Value = serde_json::from_slice(body).context("the request is not valid JSON")?;
    let fields = body.as_object_mut().context("the request is not a JSON object")?;
    fields.insert("dry_run".to_owned(), Value::Bool(true));
    Ok(serde_json::to_vec(&body)?)
}

/// Reads the file of a single push, or its part.
pub(crate) fn read_body(file: &Path) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    let (input, _) = input::open(file)?;
    input
        .take(MAX_BYTES)
        .read_to_end(&mut body)
        .with_context(|| format!("cannot read {}", file.display()))?;
    Ok(body)
}
