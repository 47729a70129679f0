//! `pushctl push`: sends one push, or with `--batch` a file of them, through the HTTP endpoint as a
//! backend would.

mod batch;
mod endpoint;

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use push_boot::{
    settings::{count, size_between},
    terminal,
};
use push_model::ids::AppId;
use push_operator::server::Server;
use serde_json::Value;

use self::batch::{BatchRequestOptions, Limits};
pub(crate) use self::endpoint::Endpoint;
use crate::{app::read_secret, input, output::Output};

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
    /// The file with the app's secret
    #[arg(long, value_name = "FILE")]
    secret_file: PathBuf,
    /// Send to the ingest at this URL
    #[arg(
        long,
        env = "PUSH_SERVER",
        value_name = "URL",
        default_value = "http://127.0.0.1:8080",
        value_parser = Server::parse
    )]
    server: Server,
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
    /// The request body as JSON, or - for standard input
    file: PathBuf,
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
/// If the file cannot be read, the server does not answer, or refuses a push.
pub async fn run(args: PushArgs, out: Output) -> anyhow::Result<()> {
    let secret = read_secret(&args.secret_file)?;
    if args.server.is_unencrypted() {
        out.note(format_args!(
            "warning: the secret goes to {} unencrypted, so machines on the way can read it: use \
             https://",
            args.server
        ));
    }
    let endpoint = Endpoint::new(args.server, &args.app_id, &secret);
    if args.batch {
        let limits = Limits { lines: args.max_batch_lines, body: args.max_batch_body };
        let options = BatchRequestOptions { file: args.file, limits, answers: args.answers };
        return batch::run(options, endpoint, out).await;
    }
    let body = read_body(&args.file)?;
    let send = move || endpoint.push(args.idempotency_key.as_deref(), &body);
    let answer = tokio::task::spawn_blocking(send).await??;
    let status = answer.get("status").and_then(Value::as_u64);
    if status != Some(200) {
        let message = answer.get("message").and_then(Value::as_str).unwrap_or("no message");
        bail!("refused with {}: {}", status.unwrap_or_default(), terminal::line(message));
    }
    let id = answer.pointer("/result/message_id").and_then(Value::as_str).unwrap_or_default();
    out.result(format!("accepted  {id}"), &answer)
}

fn read_body(file: &Path) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    let (input, _) = input::open(file)?;
    input
        .take(MAX_BYTES)
        .read_to_end(&mut body)
        .with_context(|| format!("cannot read {}", file.display()))?;
    Ok(body)
}
