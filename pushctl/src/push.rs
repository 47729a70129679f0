//! `pushctl push`: sends one request through the real HTTP endpoint, as a backend would.

use std::{
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use push_shared::{ids::AppId, secret::Secret};
use serde_json::Value;

use crate::{app::read_secret, output::Output};

/// How long the whole exchange may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The most that is read of a request file or an answer, in bytes.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// What to push.
#[derive(Debug, clap::Args)]
pub struct PushArgs {
    /// The app
    app_id: AppId,
    /// The file with the app's secret
    #[arg(long, value_name = "FILE")]
    secret_file: PathBuf,
    /// Where ingest listens
    #[arg(long, env = "PUSH_SERVER", value_name = "URL", default_value = "http://127.0.0.1:8080")]
    server: String,
    /// Makes a retry safe: the same key is the same message
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// The request body as JSON, or - for standard input
    file: PathBuf,
}

/// Sends the push and prints the answer.
///
/// # Errors
/// If the file cannot be read, the server does not answer, or refuses the push.
pub async fn run(args: PushArgs, out: Output) -> anyhow::Result<()> {
    let secret = read_secret(&args.secret_file)?;
    let body = read_body(&args.file)?;
    let answer = tokio::task::spawn_blocking(move || {
        send(&args.server, &args.app_id, &secret, args.idempotency_key.as_deref(), &body)
    })
    .await??;
    let status = answer.get("status").and_then(Value::as_u64);
    if status != Some(200) {
        let message = answer.get("message").and_then(Value::as_str).unwrap_or("no message");
        bail!("refused with {}: {message}", status.unwrap_or_default());
    }
    let id = answer.pointer("/result/message_id").and_then(Value::as_str).unwrap_or_default();
    out.result(format!("accepted  {id}"), &answer)
}

fn read_body(file: &Path) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    if file == Path::new("-") {
        std::io::stdin()
            .take(MAX_BYTES)
            .read_to_end(&mut body)
            .context("cannot read standard input")?;
    } else {
        std::fs::File::open(file)
            .and_then(|f| f.take(MAX_BYTES).read_to_end(&mut body))
            .with_context(|| format!("cannot read {}", file.display()))?;
    }
    Ok(body)
}

/// One request to the push endpoint; the answer whatever its status.
pub(crate) fn send(
    server: &str,
    app: &AppId,
    secret: &Secret,
    idempotency_key: Option<&str>,
    body: &[u8],
) -> anyhow::Result<Value> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(TIMEOUT))
        .build()
        .into();
    let url = format!("{}/v1/message/push/{app}", server.trim_end_matches('/'));
    let mut request = agent
        .post(&url)
        .header("authorization", secret.expose())
        .header("content-type", "application/json");
    if let Some(key) = idempotency_key {
        request = request.header("idempotency-key", key);
    }
    let mut answer = request.send(body).with_context(|| format!("no answer from {server}"))?;
    let text = answer.body_mut().with_config().limit(MAX_BYTES).read_to_string()?;
    serde_json::from_str(&text).with_context(|| {
        format!("{server} answered {} with something else than JSON", answer.status())
    })
}
