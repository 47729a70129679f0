//! `pushctl push --batch`: a file of pushes, a line each, in requests of many.
//!
//! ```text
//! file ──▶ reader thread: portions ──▶ one request after the other ──▶ what became of each line
//!                                          ▲                │
//!                                          └── 503, keyed ◀─┘
//! ```
//!
//! A line that is answered 503 is not known to be stored, and may be. Only if it has an
//! `idempotency_key` is it sent again, a bounded number of times; the others are reported. Where
//! a request as a whole is refused, and goes no better when it is sent again, so would those
//! behind it: the command stops there and says from which line on nothing was taken.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};
use indicatif::ProgressBar;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    endpoint::{Answer, Endpoint},
    portion::{Limits, Portion, Portions},
};
use crate::{bad_lines::BadLines, input, output::Output};

/// Portions that wait to be sent while one is on its way.
const PORTIONS_AHEAD: usize = 1;
/// How often what was answered 503 is sent again.
const TRIES_AGAIN: u32 = 5;
/// How long to wait before that if the answer does not say.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest wait, whatever the answer says.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The number that says that another try can help.
const UNAVAILABLE: u64 = 503;
/// How often the progress bar moves.
const TICK: Duration = Duration::from_millis(100);

/// What to push, and in what portions.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) file: PathBuf,
    pub(super) limits: Limits,
    /// Where to write what became of each line.
    pub(super) answers: Option<PathBuf>,
}

/// One line of an answer.
#[derive(Debug, Deserialize)]
struct LineAnswer {
    status: u64,
    message: String,
    result: Option<Accepted>,
}

#[derive(Debug, Deserialize)]
struct Accepted {
    message_id: String,
}

/// Why nothing more is sent.
#[derive(Debug, serde::Serialize)]
struct Stopped {
    /// Nothing from this line on was accepted, but for lines between that were.
    line: u64,
    reason: String,
}

/// Sends a file of pushes and reports what became of them.
///
/// # Errors
/// If the file cannot be read, or any line was not accepted.
pub(super) async fn run(job: Job, endpoint: Endpoint, out: Output) -> anyhow::Result<()> {
    let (input, size) = input::open(&job.file)?;
    let answers = match &job.answers {
        Some(file) => {
            let made = File::create(file);
            let made = made.with_context(|| format!("cannot write {}", file.display()))?;
            Some(BufWriter::new(made))
        }
        None => None,
    };
    let bar = out.progress(
        size,
        "{spinner} {bytes}/{total_bytes} {wide_bar} {bytes_per_sec} {eta} left  {msg}",
    );
    bar.enable_steady_tick(TICK);
    let started = Instant::now();

    let (full, mut filled) = mpsc::channel(PORTIONS_AHEAD);
    // The command does not join this thread when it stops early: its read may block until another
    // program writes.
    let reader = thread::Builder::new()
        .name("push-reader".to_owned())
        .spawn(move || read(Portions::new(input, job.limits), &full))
        .context("cannot start a thread")?;
    let mut sender =
        Sender { endpoint, bar, answers, pause: PAUSE, accepted: 0, bad: BadLines::default() };
    let mut stopped = None;
    while stopped.is_none()
        && let Some(mut portion) = filled.recv().await
    {
        let bytes = portion.bytes;
        sender.bad.append(std::mem::take(&mut portion.bad));
        if portion.count() > 0 {
            stopped = sender.send(portion).await?;
        }
        sender.bar.inc(bytes);
        sender.bar.set_message(format!("{} accepted", sender.accepted));
    }
    sender.bar.finish_and_clear();
    if let Some(answers) = &mut sender.answers {
        answers.flush().context("cannot write the answers")?;
    }
    sender.bad.sort();
    sender.report(stopped.as_ref(), started.elapsed(), out)?;
    if let Some(Stopped { line, reason }) = stopped {
        bail!("stopped at line {line}: {reason}");
    }
    let all_read = reader.join().map_err(|_| anyhow!("the reader of the input failed"))?;
    all_read.context("cannot read the input to its end")?;
    match sender.bad.count {
        0 => Ok(()),
        bad => bail!("{bad} lines were not accepted"),
    }
}

/// Hands over portions until the input ends or the receiver is closed.
fn read(mut portions: Portions<impl io::Read>, full: &mpsc::Sender<Portion>) -> io::Result<()> {
    while let Some(portion) = portions.next()? {
        if full.blocking_send(portion).is_err() {
            break;
        }
    }
    Ok(())
}

/// Sends portions, and counts what became of their lines.
struct Sender {
    endpoint: Endpoint,
    bar: ProgressBar,
    answers: Option<BufWriter<File>>,
    /// How long to wait before another try if the answer does not say.
    pause: Duration,
    accepted: u64,
    bad: BadLines,
}

impl Sender {
    /// Sends a portion, and again what may be. Why nothing more should be sent, if so.
    async fn send(&mut self, mut portion: Portion) -> anyhow::Result<Option<Stopped>> {
        let mut tries = TRIES_AGAIN;
        loop {
            let endpoint = self.endpoint.clone();
            let sending = move || (endpoint.push_batch(&portion.body), portion);
            let (answer, sent) = tokio::task::spawn_blocking(sending).await?;
            let first = sent.numbers().next().unwrap_or_default();
            let pause = answer.as_ref().ok().and_then(|answer| answer.retry_after);
            let again = match self.take(&sent, answer, tries > 0)? {
                Taken::Each(again) => again,
                Taken::None(reason) => return Ok(Some(Stopped { line: first, reason })),
            };
            if again.is_empty() {
                return Ok(None);
            }
            tries -= 1;
            tokio::time::sleep(pause.unwrap_or(self.pause).min(LONGEST_PAUSE)).await;
            portion = sent.only(&again);
        }
    }

    /// Takes an answer into account, and says what of the portion is to be sent again.
    fn take(
        &mut self,
        sent: &Portion,
        answer: anyhow::Result<Answer>,
        may_again: bool,
    ) -> anyhow::Result<Taken> {
        let (message, reason) = match answer {
            Ok(answer) if answer.http == 200 => return self.take_lines(sent, &answer, may_again),
            Ok(answer) => {
                let (status, message) = answer.refusal();
                let reason = format!("refused with {status}: {message}");
                if status != UNAVAILABLE {
                    return Ok(Taken::None(reason));
                }
                (message, reason)
            }
            Err(error) => (format!("{error:#}"), format!("{error:#}")),
        };
        // All or some of it may be stored.
        let keyed: Vec<usize> = (0..sent.count()).filter(|at| sent.has_key(*at)).collect();
        if keyed.is_empty() {
            let why = "without an idempotency_key none is sent again, and some may be stored";
            return Ok(Taken::None(format!("{reason} ({why})")));
        }
        if !may_again {
            return Ok(Taken::None(format!("{reason} (after {} tries)", TRIES_AGAIN + 1)));
        }
        for (at, number) in sent.numbers().enumerate() {
            if keyed.binary_search(&at).is_err() {
                self.not_accepted(number, UNAVAILABLE, &message)?;
            }
        }
        Ok(Taken::Each(keyed))
    }

    fn take_lines(
        &mut self,
        sent: &Portion,
        answer: &Answer,
        may_again: bool,
    ) -> anyhow::Result<Taken> {
        let lines: Vec<&str> = answer.text.lines().collect();
        if lines.len() != sent.count() {
            let (count, sent) = (lines.len(), sent.count());
            return Ok(Taken::None(format!("{count} lines were answered in place of {sent}")));
        }
        let mut again = Vec::new();
        for ((at, number), line) in sent.numbers().enumerate().zip(lines) {
            let line: LineAnswer = serde_json::from_str(line)
                .with_context(|| format!("the answer to line {number} cannot be read"))?;
            if let (200, Some(accepted)) = (line.status, line.result) {
                self.accepted += 1;
                let id = accepted.message_id;
                self.note(&json!({ "line": number, "status": 200, "message_id": id }))?;
            } else if may_again && line.status == UNAVAILABLE && sent.has_key(at) {
                again.push(at);
            } else {
                self.not_accepted(number, line.status, &line.message)?;
            }
        }
        Ok(Taken::Each(again))
    }

    fn not_accepted(&mut self, line: u64, status: u64, message: &str) -> anyhow::Result<()> {
        self.bad.add(line, format!("{status}: {message}"));
        self.note(&json!({ "line": line, "status": status, "message": message }))
    }

    /// Writes what became of a line.
    fn note(&mut self, line: &Value) -> anyhow::Result<()> {
        let Some(answers) = &mut self.answers else { return Ok(()) };
        writeln!(answers, "{line}").context("cannot write the answers")
    }

    fn report(&self, stopped: Option<&Stopped>, took: Duration, out: Output) -> anyhow::Result<()> {
        self.bad.tell(out);
        let Self { accepted, bad, .. } = self;
        let seconds = took.as_secs_f64();
        let rate = *accepted as f64 / seconds.max(0.001);
        out.result(
            format!(
                "{accepted} pushes accepted, {} bad lines, {seconds:.1} s, {rate:.0} pushes/s",
                bad.count
            ),
            &json!({
                "accepted": accepted,
                "bad": bad.count,
                "bad_lines": bad.reported,
                "stopped": stopped,
                "seconds": seconds,
            }),
        )
    }
}

/// What an answer says of a portion.
enum Taken {
    /// Each line was answered; these are to be sent again.
    Each(Vec<usize>),
    /// Nothing was taken, for this reason.
    None(String),
}

#[cfg(test)]
mod tests;
