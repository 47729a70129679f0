//! `pushctl doctor`: looks at the engines and says what would cost memory, safety or messages.

mod backlog;
mod history;

use anyhow::bail;
use push_index::{Finding, Index, Level};
use push_model::{ledger::Retention, time::UnixMillis};
use push_queue::{Lane, Queue, QueueError, SampleSize};

use self::backlog::Sample;
use crate::output::{Output, Table};

/// The most that is looked at of one lane, in bytes.
const SAMPLE_BYTES: usize = 64 * 1024 * 1024;

/// How to look.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// How many waiting envelopes of each lane are looked at, to tell what is still worth sending
    ///
    /// To RabbitMQ, each look counts as a delivery of these envelopes, and workers do not see them
    /// meanwhile. One that was looked at too often is moved to the end of its lane. 0 looks at none.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    backlog_sample: usize,
}

/// Looks at everything and prints the findings.
///
/// # Errors
/// If any finding is an error.
pub async fn run(
    args: &DoctorArgs,
    queue: &dyn Queue,
    index: &dyn Index,
    retention: Retention,
    out: Output,
) -> anyhow::Result<()> {
    let size = SampleSize { messages: args.backlog_sample, bytes: SAMPLE_BYTES };
    let mut findings = Vec::new();
    match queue.describe().await {
        Ok(what) => findings.push(finding(Level::Ok, "queue", what)),
        Err(error) => findings.push(finding(Level::Error, "queue", chain(&error))),
    }
    findings.push(publishing(queue).await);
    for lane in Lane::ALL {
        findings.push(backlog(queue, lane, size).await.unwrap_or_else(|error| {
            finding(Level::Error, format!("lane {}", lane.name()), chain(&error))
        }));
    }
    findings.push(dead_letters(queue).await);
    match index.inspect().await {
        Ok(more) => findings.extend(more),
        Err(error) => findings.push(finding(Level::Error, "index", chain(&error))),
    }
    findings.push(match index.history().await {
        Ok(history) => history::of(history, retention, UnixMillis::now()),
        Err(error) => finding(Level::Error, "ledger", chain(&error)),
    });
    let mut table = Table::new(&["", "WHAT", "FOUND"]);
    for finding in &findings {
        let mark = match finding.level {
            Level::Ok => "ok",
            Level::Warning => "WARN",
            Level::Error => "ERROR",
        };
        table.row([mark.to_owned(), finding.subject.clone(), finding.detail.clone()]);
    }
    out.result(table, &findings)?;
    let errors = findings.iter().filter(|f| f.level == Level::Error).count();
    if errors > 0 {
        bail!("{errors} of {} checks failed", findings.len());
    }
    Ok(())
}

/// Whether the queue's server has an alarm, which it tells only to those who publish.
async fn publishing(queue: &dyn Queue) -> Finding {
    match queue.takes_messages().await {
        Ok(()) => finding(Level::Ok, "publishing", "the queue takes messages"),
        Err(error) => finding(Level::Error, "publishing", chain(&error)),
    }
}

async fn backlog(queue: &dyn Queue, lane: Lane, size: SampleSize) -> Result<Finding, QueueError> {
    let waiting = queue.depth(lane).await?;
    let envelopes =
        if waiting > 0 && size.messages > 0 { queue.peek(lane, size).await? } else { Vec::new() };
    let now = UnixMillis::now();
    Ok(Sample::of(lane, &envelopes, now).finding(lane, waiting, now))
}

/// The most dead letters that are counted one by one.
const DEAD_COUNTED: usize = 1000;

async fn dead_letters(queue: &dyn Queue) -> Finding {
    match queue.dead(DEAD_COUNTED).await {
        Ok(letters) if letters.is_empty() => finding(Level::Ok, "dead letters", "none"),
        Ok(letters) => {
            let more = if letters.len() == DEAD_COUNTED { " or more" } else { "" };
            let detail = format!(
                "{}{more}: see `pushctl dead list`, then `pushctl dead replay` or `drop`",
                letters.len()
            );
            finding(Level::Warning, "dead letters", detail)
        }
        Err(error) => finding(Level::Error, "dead letters", chain(&error)),
    }
}

fn finding(level: Level, subject: impl Into<String>, detail: impl Into<String>) -> Finding {
    Finding { level, subject: subject.into(), detail: detail.into() }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
