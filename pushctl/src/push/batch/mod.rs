//! `pushctl push --batch`: sends a file of pushes, one per line, as batch requests.
//!
//! ```text
//! file ──▶ reader thread: batch requests ──▶ one request after the other ──▶ outcome of each line
//!                                                ▲                │
//!                                                └── not yet ◀────┘
//! ```
//!
//! A line that is answered 429 or 22001 is not stored: the app's rate limit or a quota is used up.
//! It is sent again after the pause that the answer names, so the app's rate limit sets the pace of
//! a file. A line that is answered 503 may or may not be stored. It is sent again only if it has an
//! `idempotency_key`; other such lines are reported. Retrying ends after a number of tries in which
//! no line was accepted.
//!
//! A request that is refused as a whole, for a reason that another try cannot change, ends the
//! command: the later requests would be refused too. The command then names the first line without
//! an outcome.
//!
//! - `request`: cuts the file into batch requests
//! - `sender`: sends them, retries, and counts

mod request;
mod sender;

use std::{
    fs::File,
    io::{self, BufWriter},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};
use push_boot::terminal;
use push_operator::client::Client;
use serde_json::json;
use tokio::sync::mpsc;

pub(super) use self::request::Limits;
use self::{
    request::{BatchRequest, BatchRequests},
    sender::{Sender, Stopped},
};
use crate::{
    input::{self, print_noted},
    output::Output,
};

/// Requests that are read ahead while one is sent.
const READ_AHEAD: usize = 1;
/// The time between two drawings of the progress bar.
const TICK: Duration = Duration::from_millis(100);

/// The file to push, and how.
#[derive(Debug)]
pub(super) struct BatchRequestOptions {
    pub(super) file: PathBuf,
    pub(super) limits: Limits,
    /// The file for the outcome of each line.
    pub(super) answers: Option<PathBuf>,
}

/// Sends a file of pushes and reports how many were accepted.
///
/// # Errors
/// If the file cannot be read, or any line was not accepted.
pub(super) async fn run(
    options: BatchRequestOptions,
    client: Client,
    out: Output,
) -> anyhow::Result<()> {
    let (input, size) = input::open(&options.file)?;
    let answers = match &options.answers {
        Some(file) => {
            let created = File::create(file);
            let created = created.with_context(|| format!("cannot write {}", file.display()))?;
            Some(BufWriter::new(created))
        }
        None => None,
    };
    let bar = out.progress(
        size,
        "{spinner} {bytes}/{total_bytes} {wide_bar} {bytes_per_sec} {eta} left  {msg}",
    );
    bar.enable_steady_tick(TICK);
    let started = Instant::now();

    let (sending, mut requests) = mpsc::channel(READ_AHEAD);
    // If the command stops early, it does not join this thread, whose read may block until another
    // program writes to the pipe.
    let reader = thread::Builder::new()
        .name("push-reader".to_owned())
        .spawn(move || read(BatchRequests::new(input, options.limits), &sending))
        .context("cannot start a thread")?;
    let mut sender = Sender::new(client, bar, answers);
    let mut stopped = None;
    while stopped.is_none()
        && let Some(mut request) = requests.recv().await
    {
        let bytes = request.input_bytes;
        sender.rejected.append(std::mem::take(&mut request.rejected));
        if request.count() > 0 {
            stopped = sender.send(request).await?;
        }
        sender.bar.inc(bytes);
        sender.bar.set_message(format!("{} accepted", sender.accepted));
    }
    sender.bar.finish_and_clear();
    sender.flush()?;
    sender.rejected.sort();
    sender.warned.sort();
    report(&sender, stopped.as_ref(), started.elapsed(), out)?;
    if let Some(Stopped { line, reason }) = stopped {
        bail!("stopped at line {line}: {}", terminal::line(&reason));
    }
    let all_read = reader.join().map_err(|_| anyhow!("the reader of the input failed"))?;
    all_read.context("cannot read the input to its end")?;
    match sender.rejected.count {
        0 => Ok(()),
        count => bail!("{count} lines were not accepted"),
    }
}

/// Sends requests to the channel until the input ends or the receiver is closed.
fn read(
    mut requests: BatchRequests<impl io::Read>,
    sending: &mpsc::Sender<BatchRequest>,
) -> io::Result<()> {
    while let Some(request) = requests.next()? {
        if sending.blocking_send(request).is_err() {
            break;
        }
    }
    Ok(())
}

fn report(
    sender: &Sender,
    stopped: Option<&Stopped>,
    took: Duration,
    out: Output,
) -> anyhow::Result<()> {
    let Sender { accepted, rejected, warned, .. } = sender;
    print_noted(&warned.reported, warned.count, "warnings", out);
    print_noted(&rejected.reported, rejected.count, "bad lines", out);
    let seconds = took.as_secs_f64();
    let rate = *accepted as f64 / seconds.max(0.001);
    out.result(
        format!(
            "{accepted} pushes accepted, {} bad lines, {seconds:.1} s, {rate:.0} pushes/s",
            rejected.count
        ),
        &json!({
            "accepted": accepted,
            "bad": rejected.count,
            "bad_lines": rejected.reported,
            "warnings": warned.count,
            "warned_lines": warned.reported,
            "stopped": stopped,
            "seconds": seconds,
        }),
    )
}
