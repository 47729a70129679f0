//! Sends batch requests, retries what may be retried, and counts the outcome of each line.

use std::{
    fs::File,
    io::{BufWriter, Write},
    time::Duration,
};

use anyhow::Context as _;
use indicatif::ProgressBar;
use push_model::codes::PushCode;
use push_operator::{
    client::{Answer, Client},
    input::NotedLines,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::request::BatchRequest;

/// The most repeats of a request, with the lines that may be sent again, in which none of them is
/// accepted.
const RETRIES: u32 = 5;
/// The pause before a retry if the answer names none.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause, even if the answer asks for more.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(10);
/// The status of a line or request that may be stored.
const UNAVAILABLE: u64 = 503;

/// Decides if a line or request may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retry {
    /// It may not: it would be refused again.
    No,
    /// It may: it was not stored, because the app's rate limit or a quota is used up for now.
    Yes,
    /// It may if it has a key: it may have been stored, and a push with a key is accepted once,
    /// however often it is sent.
    WithKey,
}

impl Retry {
    fn after(status: u64) -> Self {
        match status {
            UNAVAILABLE => Self::WithKey,
            429 => Self::Yes,
            status if status == u64::from(PushCode::TooFrequent.number()) => Self::Yes,
            _ => Self::No,
        }
    }

    /// Decides if this line of the request may be sent again.
    fn is_for(self, sent: &BatchRequest, index: usize) -> bool {
        match self {
            Self::No => false,
            Self::Yes => true,
            Self::WithKey => sent.has_key(index),
        }
    }
}

/// A line of the answer to a batch request.
#[derive(Debug, Deserialize)]
struct LineAnswer {
    status: u64,
    message: String,
    result: Option<Accepted>,
}

impl LineAnswer {
    fn is_accepted(&self) -> bool {
        self.status == 200 && self.result.is_some()
    }
}

#[derive(Debug, Deserialize)]
struct Accepted {
    message_id: String,
    #[serde(default)]
    warnings: Vec<String>,
}

/// The reason why the rest of the file is not sent.
#[derive(Debug, serde::Serialize)]
pub(super) struct Stopped {
    /// The first line without an outcome. Later lines of the same request may have been accepted
    /// at an earlier try.
    pub(super) line: u64,
    pub(super) reason: String,
}

/// Sends batch requests one after the other, and counts the outcome of their lines.
pub(super) struct Sender {
    client: Client,
    pub(super) bar: ProgressBar,
    answers: Option<BufWriter<File>>,
    /// The pause before a retry if the answer names none.
    pause: Duration,
    pub(super) accepted: u64,
    pub(super) rejected: NotedLines,
    pub(super) warned: NotedLines,
}

impl Sender {
    pub(super) fn new(client: Client, bar: ProgressBar, answers: Option<BufWriter<File>>) -> Self {
        let (rejected, warned) = Default::default();
        Self { client, bar, answers, pause: RETRY_PAUSE, accepted: 0, rejected, warned }
    }

    /// Sends a request, and retries those of its lines that may be retried. If the rest of the file
    /// should not be sent, returns the reason.
    pub(super) async fn send(
        &mut self,
        mut request: BatchRequest,
    ) -> anyhow::Result<Option<Stopped>> {
        let mut retries = RETRIES;
        loop {
            let client = self.client.clone();
            let sending = move || (client.push_batch(&request.body), request);
            let (answer, sent) = tokio::task::spawn_blocking(sending).await?;
            let first = sent.line_numbers().next().unwrap_or_default();
            let pause = answer.as_ref().ok().and_then(|answer| answer.retry_after);
            let pause = pause.unwrap_or(self.pause).min(MAX_RETRY_PAUSE);
            let accepted = self.accepted;
            let retry = match self.handle_answer(&sent, answer, retries > 0)? {
                RequestOutcome::Answered { retry } => retry,
                RequestOutcome::Refused(reason) => {
                    return Ok(Some(Stopped { line: first, reason }));
                }
            };
            if retry.is_empty() {
                return Ok(None);
            }
            retries = if self.accepted > accepted { RETRIES } else { retries.saturating_sub(1) };
            let (accepted, left) = (self.accepted, retry.len());
            self.bar.set_message(format!("{accepted} accepted, {left} are to be sent again"));
            tokio::time::sleep(pause).await;
            request = sent.subset(&retry);
        }
    }

    /// Counts the lines of an answered request, or decides what a failed one means.
    fn handle_answer(
        &mut self,
        sent: &BatchRequest,
        answer: anyhow::Result<Answer>,
        may_retry: bool,
    ) -> anyhow::Result<RequestOutcome> {
        let (status, message, reason) = match answer {
            Ok(answer) if answer.http == 200 => return self.handle_lines(sent, &answer, may_retry),
            Ok(answer) => {
                let (status, message) = answer.refusal();
                let reason = format!("refused with {status}: {message}");
                (status, message, reason)
            }
            // Ingest may have stored all or some of its pushes, as before an answer of 503.
            Err(error) => (UNAVAILABLE, format!("{error:#}"), format!("{error:#}")),
        };
        let retry = Retry::after(status);
        if retry == Retry::No {
            return Ok(RequestOutcome::Refused(reason));
        }
        let (again, others): (Vec<usize>, Vec<usize>) =
            (0..sent.count()).partition(|index| retry.is_for(sent, *index));
        if again.is_empty() {
            let why = "without an idempotency_key none is sent again, and some may be stored";
            return Ok(RequestOutcome::Refused(format!("{reason} ({why})")));
        }
        if !may_retry {
            let tries = RETRIES + 1;
            return Ok(RequestOutcome::Refused(format!("{reason} (after {tries} tries)")));
        }
        let numbers: Vec<u64> = sent.line_numbers().collect();
        for number in others.into_iter().filter_map(|index| numbers.get(index)) {
            self.not_accepted(*number, status, &message)?;
        }
        Ok(RequestOutcome::Answered { retry: again })
    }

    fn handle_lines(
        &mut self,
        sent: &BatchRequest,
        answer: &Answer,
        may_retry: bool,
    ) -> anyhow::Result<RequestOutcome> {
        let lines: Vec<&str> = answer.text.lines().collect();
        if lines.len() != sent.count() {
            let (count, sent) = (lines.len(), sent.count());
            let reason = format!("{count} lines were answered in place of {sent}");
            return Ok(RequestOutcome::Refused(reason));
        }
        let read = |(number, line)| {
            serde_json::from_str(line)
                .with_context(|| format!("the answer to line {number} cannot be read"))
        };
        let lines: Vec<LineAnswer> =
            sent.line_numbers().zip(lines).map(read).collect::<anyhow::Result<_>>()?;
        let may_retry = may_retry || lines.iter().any(LineAnswer::is_accepted);
        let mut retry = Vec::new();
        for ((index, number), line) in sent.line_numbers().enumerate().zip(lines) {
            if let (200, Some(accepted)) = (line.status, line.result) {
                self.accepted += 1;
                for warning in accepted.warnings {
                    self.warned.add(number, format!("warning: {warning}"));
                }
                let id = accepted.message_id;
                self.write_answer(&json!({ "line": number, "status": 200, "message_id": id }))?;
            } else if may_retry && Retry::after(line.status).is_for(sent, index) {
                retry.push(index);
            } else {
                self.not_accepted(number, line.status, &line.message)?;
            }
        }
        Ok(RequestOutcome::Answered { retry })
    }

    fn not_accepted(&mut self, line: u64, status: u64, message: &str) -> anyhow::Result<()> {
        self.rejected.add(line, format!("{status}: {message}"));
        self.write_answer(&json!({ "line": line, "status": status, "message": message }))
    }

    /// Writes the outcome of a line to the file of `--answers`.
    fn write_answer(&mut self, line: &Value) -> anyhow::Result<()> {
        let Some(answers) = &mut self.answers else { return Ok(()) };
        writeln!(answers, "{line}").context("cannot write the answers")
    }

    /// Writes out what is buffered for the file of `--answers`.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        let Some(answers) = &mut self.answers else { return Ok(()) };
        answers.flush().context("cannot write the answers")
    }
}

/// The outcome of one request.
enum RequestOutcome {
    /// Every line has an outcome, but for these indexes, which are to be sent again.
    Answered { retry: Vec<usize> },
    /// The request was refused as a whole, for this reason. The later requests would be, too.
    Refused(String),
}

#[cfg(test)]
mod tests;
