//! A long history: how many bytes a finished push takes in the ledger when there are very many, and
//! how long it takes to read any of them by its id, as `GET /v1/message/…` does.
//!
//! Lookups run on one thread: a runtime with several may wake one thread for an answer and run the
//! task on another, which takes longer.

use std::{future::Future, num::NonZeroUsize, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use push_boot::{engines::IndexUrl, runtime};
use push_index::Ledger;
use push_model::{app::AppKey, ids::MessageId};
use push_tests::{namespace, servers::Redis, stack::APP};
use redis::{Cmd, Value, aio::MultiplexedConnection};
use tokio::time::{Instant, sleep};

use crate::{
    load::ledger_writer,
    measure::{
        memory::used_memory,
        stats::{Rounds, median, quantile},
    },
    report::{Figure, Row, Target},
    setup::{Environment, environment::open_engine},
};

/// Every so many pushes the id of one is kept for the lookups. The number is coprime to the pushes
/// of a ledger page, so that all positions of a page are read.
const SAMPLE_EACH: usize = 101;
/// The share of the history that is written before memory is measured, so that buffers and scripts,
/// which do not grow with the history, are allocated already.
const UNCOUNTED: f64 = 0.1;
/// Lookups of a round.
const LOOKUPS: usize = 2000;
/// Keys that one step of a SCAN examines.
const SCAN_COUNT: usize = 1000;
/// Pages whose fields a plain client reads.
const PAGES: usize = 10_000;
/// The end of the name of SQLite's write-ahead log. The last connection to close removes the file.
const SQLITE_LOG: &str = "-wal";
/// The deadline for an embedded store to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const QUANTILES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];
/// The target of a lookup, in milliseconds.
const LOOKUP: Target = Target::AtMost(1.0);

pub(crate) async fn run(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let mut rows = in_redis(env).await?;
    rows.extend(in_sqlite(env).await?);
    Ok(rows)
}

async fn in_redis(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let (redis, namespace, app) = (Redis::start().await?, namespace(), AppKey::first(APP.parse()?));
    let pushes = env.sizes.history;
    let uncounted = (pushes as f64 * UNCOUNTED) as usize;
    let counted = pushes - uncounted;
    let ledger = open_engine(IndexUrl::Redis(redis.url().into()), &namespace).await?.ledger;
    let mut ids = ledger_writer::write_finished(&ledger, &app, uncounted, SAMPLE_EACH).await?;
    let before = used_memory(&redis).await?;
    let started = Instant::now();
    ids.extend(ledger_writer::write_finished(&ledger, &app, counted, SAMPLE_EACH).await?);
    let rate = counted as f64 / started.elapsed().as_secs_f64();
    let grown = used_memory(&redis).await?.saturating_sub(before);
    drop(ledger);
    let mut rows = vec![Row {
        what: format!("history in Redis, {pushes} finished pushes"),
        figure: Figure::new(grown as f64 / counted as f64, "bytes/push"),
        ceiling: None,
        ratio: None,
        target: Target::AtMost(48.0),
        how: format!(
            "to one device each, through the engine's ledger, {}: used_memory of Redis after the \
             last {counted} less before",
            Figure::new(rate, "a second")
        ),
    }];

    let (url, rounds) = (redis.url(), env.sizes.rounds);
    let measured = on_one_thread(async move {
        let ledger = open_engine(IndexUrl::Redis(url.clone().into()), &namespace).await?.ledger;
        let mut raw = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        let reads = reads(&mut raw, &namespace).await?;
        let mut measured = QUANTILES.map(|_| Rounds::default());
        for round in 0..rounds {
            let mut ours = look_up(&*ledger, &app, round_sample(&ids, round)).await?;
            let mut theirs = read(&mut raw, round_sample(&reads, round)).await?;
            for (rounds, (_, share)) in measured.iter_mut().zip(QUANTILES) {
                rounds.add(quantile(&mut ours, share), quantile(&mut theirs, share));
            }
        }
        Ok(measured)
    });
    for ((name, _), rounds) in QUANTILES.iter().zip(measured.await?) {
        let (figure, ceiling, ratio) = rounds.medians();
        rows.push(Row {
            what: format!("history in Redis, reading one by its id, {name}"),
            figure: Figure::new(figure, "ms"),
            ceiling: Some(Figure::new(ceiling, "ms")),
            ratio: Some(ratio),
            target: LOOKUP,
            how: format!(
                "{} x {LOOKUPS} one after the other, from all over the history. Ceiling, in turn: \
                 an HGET of a field of such a page by a plain client",
                env.sizes.rounds
            ),
        });
    }
    Ok(rows)
}

async fn in_sqlite(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let (folder, namespace, app) = (tempfile::tempdir()?, namespace(), AppKey::first(APP.parse()?));
    let pushes = env.sizes.embedded_history;
    let url = IndexUrl::Sqlite(folder.path().join("index.sqlite3"));
    let empty =
        closed_size(open_engine(url.clone(), &namespace).await?.ledger, folder.path()).await?;
    let ledger = open_engine(url.clone(), &namespace).await?.ledger;
    let started = Instant::now();
    let ids = ledger_writer::write_finished(&ledger, &app, pushes, SAMPLE_EACH).await?;
    let rate = pushes as f64 / started.elapsed().as_secs_f64();
    let grown = closed_size(ledger, folder.path()).await?.saturating_sub(empty);
    let mut rows = vec![Row {
        what: format!("history in SQLite, {pushes} finished pushes"),
        figure: Figure::new(grown as f64 / pushes as f64, "bytes/push"),
        ceiling: None,
        ratio: None,
        target: Target::None,
        how: format!(
            "to one device each, through the engine's ledger, {}: the closed file after them less \
             before",
            Figure::new(rate, "a second")
        ),
    }];

    let rounds = env.sizes.rounds;
    let measured = on_one_thread(async move {
        let ledger = open_engine(url, &namespace).await?.ledger;
        let mut measured = QUANTILES.map(|_| Vec::new());
        for round in 0..rounds {
            let mut times = look_up(&*ledger, &app, round_sample(&ids, round)).await?;
            for (figures, (_, share)) in measured.iter_mut().zip(QUANTILES) {
                figures.push(quantile(&mut times, share));
            }
        }
        Ok(measured)
    });
    for ((name, _), figures) in QUANTILES.iter().zip(measured.await?) {
        rows.push(Row {
            what: format!("history in SQLite, reading one by its id, {name}"),
            figure: Figure::new(median(figures), "ms"),
            ceiling: None,
            ratio: None,
            target: LOOKUP,
            how: format!(
                "{} x {LOOKUPS} one after the other, from all over the history",
                env.sizes.rounds
            ),
        });
    }
    Ok(rows)
}

async fn on_one_thread<T: Send + 'static>(
    work: impl Future<Output = anyhow::Result<T>> + Send + 'static,
) -> anyhow::Result<T> {
    let run = move || runtime::start(NonZeroUsize::MIN)?.block_on(work);
    tokio::task::spawn_blocking(run).await?
}

/// What a round reads: spread over the whole history, and different from the rounds before if there
/// are enough.
fn round_sample<T>(all: &[T], round: usize) -> impl Iterator<Item = &T> {
    let step = (all.len() / LOOKUPS).max(1);
    all.iter().skip(round % step).step_by(step).cycle().take(LOOKUPS)
}

/// How long each lookup of these ids takes.
async fn look_up(
    ledger: &dyn Ledger,
    app: &AppKey,
    ids: impl Iterator<Item = &MessageId>,
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(LOOKUPS);
    for id in ids {
        let started = Instant::now();
        let entry = ledger.entry(app, id).await?;
        times.push(started.elapsed());
        let entry = entry.with_context(|| format!("{id} has no entry"))?;
        ensure!(entry.is_closed() && entry.outcomes.sent == 1, "{entry:?}");
    }
    Ok(times)
}

/// How long each of these reads takes.
async fn read(
    raw: &mut MultiplexedConnection,
    reads: impl Iterator<Item = &Cmd>,
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(LOOKUPS);
    for read in reads {
        let started = Instant::now();
        let record: Value = read.query_async(raw).await?;
        times.push(started.elapsed());
        ensure!(matches!(record, Value::BulkString(_)), "a field is gone");
    }
    Ok(times)
}

/// Reads of one field each, from pages spread over the whole history. The field is a random one, so
/// that this code need not know how the engine names fields.
async fn reads(raw: &mut MultiplexedConnection, namespace: &str) -> anyhow::Result<Vec<Cmd>> {
    let mut pages: Vec<String> = Vec::new();
    let mut cursor = 0;
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(format!("{namespace}:*")).arg("COUNT").arg(SCAN_COUNT);
        let (next, found): (u64, Vec<String>) =
            scan.arg("TYPE").arg("hash").query_async(raw).await?;
        pages.extend(found);
        if next == 0 {
            break;
        }
        cursor = next;
    }
    let step = (pages.len() / PAGES).max(1);
    let mut reads = Vec::new();
    for page in pages.iter().step_by(step) {
        let field: Option<Vec<u8>> = redis::cmd("HRANDFIELD").arg(page).query_async(raw).await?;
        let mut read = redis::cmd("HGET");
        read.arg(page).arg(field.context("a page without a field")?);
        reads.push(read);
    }
    ensure!(!reads.is_empty(), "the ledger has no page");
    Ok(reads)
}

/// Closes an embedded store and returns the bytes of its files.
async fn closed_size(ledger: Arc<dyn Ledger>, folder: &Path) -> anyhow::Result<u64> {
    drop(ledger);
    let started = Instant::now();
    loop {
        let (mut bytes, mut has_log) = (0, false);
        for file in std::fs::read_dir(folder)? {
            let file = file?;
            bytes += file.metadata()?.len();
            has_log |= file.file_name().to_string_lossy().ends_with(SQLITE_LOG);
        }
        if !has_log {
            return Ok(bytes);
        }
        ensure!(started.elapsed() < CLOSE_TIMEOUT, "the store keeps its log: it does not close");
        sleep(POLL_INTERVAL).await;
    }
}
