//! Messages of one app, through the HTTP endpoint of a server.

use std::time::Duration;

use anyhow::{Context as _, bail};
use push_model::{
    audience::AudienceReport,
    ids::MessageId,
    ledger::MessageState,
    report::{Report, ReportPage},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    MessageUpdate, WatchEvent,
    rate::{RateEstimator, Sample},
};
use crate::client::Client;

/// The path of messages.
const MESSAGE: &str = "message";
/// The longest outage of the server before watching fails.
const MAX_OUTAGE: Duration = Duration::from_secs(60);

/// The most messages that the server answers in one page.
const PAGE: usize = 200;
/// The most pages that one list reads, so that a state that few messages are in ends it, too.
const MOST_PAGES: usize = 100;

/// Lists the messages that a worker has begun: at most `limit`, behind the page that ended with this cursor.
/// There may be fewer, although the list goes on, if few are in the state that is asked for.
///
/// # Errors
/// If the cursor is not one of the app's messages, or the server did not answer.
pub async fn list(
    client: &Client,
    limit: usize,
    cursor: Option<&str>,
    state: Option<MessageState>,
) -> anyhow::Result<ReportPage> {
    let mut all = ReportPage { messages: Vec::new(), next_cursor: cursor.map(str::to_owned) };
    for _ in 0..MOST_PAGES {
        let missing = limit.saturating_sub(all.messages.len()).min(PAGE);
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", &missing.to_string());
        if let Some(cursor) = &all.next_cursor {
            query.append_pair("cursor", cursor);
        }
        if let Some(state) = state {
            query.append_pair("state", state.name());
        }
        let no_page = || format!("{} answered with no list of messages", client.server());
        let result = client.list(MESSAGE, &query.finish()).await?.with_context(no_page)?;
        let page: ReportPage = serde_json::from_value(result).with_context(no_page)?;
        all.messages.extend(page.messages);
        all.next_cursor = page.next_cursor;
        if all.next_cursor.is_none() || all.messages.len() >= limit {
            break;
        }
    }
    Ok(all)
}

/// Counts the devices that a push with this condition would target.
///
/// # Errors
/// If the server refuses the condition, or did not answer.
pub async fn audience(client: &Client, condition: &Value) -> anyhow::Result<AudienceReport> {
    let no_counts = || format!("{} answered with no counts", client.server());
    let body = serde_json::to_vec(&json!({ "condition": condition }))?;
    let result = client.ask("audience", body).await?.with_context(no_counts)?;
    serde_json::from_value(result).with_context(no_counts)
}

/// Shows the ledger of a message.
///
/// # Errors
/// If there is no such message, or the server did not answer.
pub async fn show(client: &Client, message: &MessageId) -> anyhow::Result<Report> {
    let report = read(client, "GET", message).await?;
    report.with_context(|| unknown(client, message))
}

/// Stops sending a message.
///
/// # Errors
/// If there is no such message, or the server did not answer.
pub async fn recall(client: &Client, message: &MessageId) -> anyhow::Result<Report> {
    let report = read(client, "DELETE", message).await?;
    report.with_context(|| unknown(client, message))
}

/// Watches a message until it is closed, and returns its last report. It is read once per `interval`.
/// With `accepted`, the server has just accepted it, and it is waited for until a worker begins it.
///
/// # Errors
/// If there is no such message, the server is unavailable for too long, or `take` failed.
pub async fn watch(
    client: &Client,
    message: &MessageId,
    accepted: bool,
    interval: Duration,
    mut take: impl FnMut(WatchEvent) -> anyhow::Result<()> + Send,
) -> anyhow::Result<Report> {
    let (started, mut rate) = (Instant::now(), RateEstimator::default());
    let (mut last, mut away_since): (Option<Report>, Option<Instant>) = (None, None);
    loop {
        match read(client, "GET", message).await {
            Ok(report) => {
                if away_since.take().is_some() {
                    take(WatchEvent::Back(client.server().to_string()))?;
                }
                match report {
                    Some(report) if has_begun(&report) => {
                        let changed = last.as_ref() != Some(&report);
                        if is_final(&report, !changed) {
                            return Ok(report);
                        }
                        let devices = report.outcomes.total();
                        rate.add(Sample { at: started.elapsed(), devices, share: None });
                        let update = MessageUpdate::of_report(report.clone(), &rate, changed);
                        take(WatchEvent::Update(Box::new(update)))?;
                        last = Some(report);
                    }
                    None if !accepted || last.is_some() => bail!(unknown(client, message)),
                    _ => take(WatchEvent::NotBegun)?,
                }
            }
            Err(error) if Client::may_pass(&error) => {
                if away_since.is_none() {
                    take(WatchEvent::Away(format!("{error:#}, trying for {MAX_OUTAGE:?}")))?;
                }
                if away_since.get_or_insert_with(Instant::now).elapsed() >= MAX_OUTAGE {
                    return Err(error.context("the server was unavailable for too long"));
                }
            }
            Err(error) => return Err(error),
        }
        sleep(interval).await;
    }
}

/// Returns true once a worker has begun the message.
fn has_begun(report: &Report) -> bool {
    report.state != MessageState::Accepted || report.targeted > 0
}

/// Returns true if the report will not change any more. After a recall or the expiry, workers still
/// count devices; that is over when two reports are the same.
fn is_final(report: &Report, is_same: bool) -> bool {
    match report.state {
        MessageState::Accepted | MessageState::Sending => false,
        MessageState::Done => true,
        MessageState::Recalled | MessageState::Expired => is_same && report.pending == 0,
    }
}

async fn read(
    client: &Client,
    method: &'static str,
    message: &MessageId,
) -> anyhow::Result<Option<Report>> {
    let result: Option<Value> =
        client.call(method, MESSAGE, &message.to_string(), Vec::new()).await?;
    let report = result.map(serde_json::from_value).transpose();
    report.with_context(|| format!("{} answered with no report", client.server()))
}

fn unknown(client: &Client, message: &MessageId) -> String {
    format!("{} has no message {message} at {}", client.app(), client.server())
}
