//! The state of a deployment at one moment: what waits in the queue, and the broadcasts in work. A part that does
//! not answer is named, and hides nothing of the others.

use std::num::NonZeroU32;

use futures::{StreamExt as _, stream};
use push_boot::engines::Stores;
use push_model::{
    app::AppKey,
    causes::with_causes,
    ids::{AppId, MessageId},
    ledger::Outcomes,
    open_broadcast::OpenBroadcast,
    progress::Progress,
    report::Report,
    time::UnixMillis,
};
use push_queue::{Lane, LaneCounts, Queue, QueueCounts};
use serde::Serialize;

/// The most broadcasts of which more than the number is shown: those with the most devices left.
const BROADCASTS_SHOWN: usize = 50;
/// Broadcasts that are read at the same time.
const READS: usize = 8;

/// The state.
#[derive(Debug, Clone, Serialize)]
pub struct StatusView {
    /// The queue; none if it did not answer, or the caller may see one app alone.
    pub queue: Option<QueueView>,
    /// The broadcasts in work, those with the most devices left first, 50 at most; none if the ledger did not
    /// answer.
    pub broadcasts: Option<Vec<BroadcastView>>,
    /// The number of broadcasts in work.
    pub open_broadcasts: u64,
    /// The parts that do not work.
    pub problems: Vec<Problem>,
}

/// A part that does not work.
#[derive(Debug, Clone, Serialize)]
pub struct Problem {
    /// `queue`, `index` or `ledger`.
    pub part: &'static str,
    /// The reason.
    pub detail: String,
}

/// What the queue holds.
#[derive(Debug, Clone, Serialize)]
pub struct QueueView {
    /// Product and version of its server.
    pub server: Option<String>,
    /// Its lanes.
    pub lanes: Vec<LaneView>,
    /// Messages that wait for their time.
    pub delayed: u64,
    /// Dead letters.
    pub dead: u64,
}

/// What a lane holds.
#[derive(Debug, Clone, Serialize)]
pub struct LaneView {
    /// The lane.
    pub lane: &'static str,
    /// Messages that wait for a worker.
    pub ready: u64,
    /// Workers that consume it.
    pub consumers: u64,
    /// The age of the oldest message that waits, in seconds.
    pub oldest_seconds: u64,
}

/// A broadcast in work.
#[derive(Debug, Clone, Serialize)]
pub struct BroadcastView {
    /// The message.
    pub message_id: MessageId,
    /// Its app.
    pub app_id: AppId,
    /// After this time nothing of it is sent any more.
    pub ends_at: UnixMillis,
    /// About how many devices are left.
    pub devices_left: u64,
    /// When it was accepted; none if the ledger has no entry.
    pub accepted_at: Option<UnixMillis>,
    /// The share of its audience that was processed, from 0 to 1; none if that is not known.
    pub progress: Option<f64>,
    /// Devices found so far to be in the audience; none if the ledger has no entry.
    pub targeted: Option<u64>,
    /// Devices that have an outcome, by outcome; none if the ledger has no entry.
    #[serde(flatten)]
    pub outcomes: Option<Outcomes>,
    /// Devices a second that all workers together send to; none for no limit.
    pub pace: Option<NonZeroU32>,
}

impl QueueView {
    fn of(counts: QueueCounts, server: Option<String>) -> Self {
        let lane = |lane: Lane| {
            let LaneCounts { ready, consumers, oldest } = counts.lane(lane);
            let (lane, oldest_seconds) = (lane.name(), oldest.as_secs());
            LaneView { lane, ready: *ready, consumers: *consumers, oldest_seconds }
        };
        let lanes = Lane::QUEUES.into_iter().map(lane).collect();
        Self { server, lanes, delayed: counts.delayed, dead: counts.dead }
    }
}

/// Reads the state; with an app, only that of its broadcasts.
pub async fn read(queue: &dyn Queue, stores: &Stores, only: Option<&AppKey>) -> StatusView {
    let mut problems = Vec::new();
    let mut note = |part, error: &(dyn std::error::Error + 'static)| {
        problems.push(Problem { part, detail: with_causes(error) });
    };
    let queue = match only {
        Some(_) => None,
        None => match queue.counts().await {
            Ok(counts) => Some(QueueView::of(counts, queue.describe().await.ok())),
            Err(error) => {
                note("queue", &error);
                None
            }
        },
    };
    if let Err(error) = stores.index.ping().await {
        note("index", &error);
    }
    let open = stores.ledger.open_broadcasts().await.map_err(|error| note("ledger", &error)).ok();
    let (mut open_broadcasts, mut broadcasts) = (0, None);
    if let Some(mut open) = open {
        open.retain(|broadcast| only.is_none_or(|app| broadcast.app == *app));
        open_broadcasts = open.len() as u64;
        open.sort_unstable_by_key(|broadcast| std::cmp::Reverse(broadcast.total_left()));
        open.truncate(BROADCASTS_SHOWN);
        let views = stream::iter(open).map(|broadcast| view(stores, broadcast));
        broadcasts = Some(views.buffered(READS).collect().await);
    }
    StatusView { queue, broadcasts, open_broadcasts, problems }
}

/// Shows a broadcast with what its entry and its app say. What does not answer is left out.
async fn view(stores: &Stores, broadcast: OpenBroadcast) -> BroadcastView {
    let (id, app) = (broadcast.message_id, &broadcast.app);
    let entry = stores.ledger.entry(app, &id).await.ok().flatten();
    let progress = entry.as_ref().and_then(Progress::of).map(Progress::share);
    let report = entry.map(|entry| Report::of(&entry, UnixMillis::now()));
    let record = stores.index.app(&app.id).await.ok().flatten();
    BroadcastView {
        message_id: id,
        app_id: app.id.clone(),
        ends_at: broadcast.ends_at,
        devices_left: broadcast.total_left(),
        accepted_at: report.as_ref().map(|report| report.accepted_at),
        progress,
        targeted: report.as_ref().map(|report| report.targeted),
        outcomes: report.map(|report| report.outcomes),
        pace: record.and_then(|record| record.pace),
    }
}
