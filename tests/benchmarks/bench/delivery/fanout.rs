//! A broadcast to the transport `discard` with ledger and checkpoints, and the memory of the
//! programs under load.

use anyhow::ensure;
use futures::{StreamExt, TryStreamExt, stream};
use push_index::{Index, Selection};
use push_model::{
    app::AppKey,
    device::{TargetFields, TransportKind},
    slots::SlotRange,
    targeting::Targeting,
    time::UnixMillis,
};
use push_tests::stack::APP;
use tokio::time::Instant;

use crate::{
    load::{broadcasts, pushes::ordinary_push},
    measure::{memory::peak_memory, stats::Rounds},
    report::{Figure, Row, Target},
    setup::{Environment, LoadedApp, environment::purge_jobs, population},
};

/// Requests that the raw reader makes concurrently, and the devices of each: a worker's defaults.
const CONCURRENT_READS: usize = 4;
const BATCH: usize = 1000;
/// Connections of the load on `ingest`.
const CONNECTIONS: usize = 256;

pub(crate) async fn run(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let loaded = env.big_app().await?;
    let worker = loaded.stack.worker(&[]).await;
    let mut producer = loaded.producer().connect().await?;
    let index = loaded.index().await?;
    let mut rounds = Rounds::default();
    for _ in 0..env.sizes.rounds {
        let figure = broadcasts::send_one(&mut producer, loaded.size).await?;
        let ceiling = raw_scan(&*index, loaded).await?;
        rounds.add(figure, ceiling);
    }
    ensure!(worker.stop().await.success(), "the worker did not stop well");
    Ok(vec![Row {
        what: format!("broadcast to discard, {} devices", loaded.size),
        target: Target::RatioAtLeast(0.30),
        how: format!(
            "{} broadcasts, one worker, from the POST to the ledger's `done`, a checkpoint every \
             {BATCH} devices. Ceiling, in turn: reading all devices from the same index, \
             {CONCURRENT_READS} reads of {BATCH} at once, without sending or ledger",
            env.sizes.rounds
        ),
        ..rounds.row("devices/s", "devices/s")
    }])
}

/// Peak resident memory of both programs under load.
pub(crate) async fn memory(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let loaded = env.big_app().await?;
    let worker = loaded.stack.worker(&[]).await;
    let mut producer = loaded.producer().connect().await?;
    broadcasts::send_one(&mut producer, loaded.size).await?;
    let of_worker = peak_memory(worker.id());
    ensure!(worker.stop().await.success(), "the worker did not stop well");

    let service = env.empty_app().await?;
    let body = ordinary_push(&population::client_id(1));
    service.producer().wrk(CONNECTIONS, env.sizes.load, &body).await?;
    let of_ingest = peak_memory(service.stack.ingest().id());
    purge_jobs(&env.amqp_url().await?, &service.stack).await?;

    let row = |what: String, memory: Option<f64>, target| {
        memory.map(|memory| Row {
            what,
            target: Target::AtMost(target),
            how: "the most the process ever had resident (VmHWM)".to_owned(),
            ..Row::alone(Figure::new(memory, "MB"))
        })
    };
    let rows = [
        row(format!("worker's memory, broadcast to {} devices", loaded.size), of_worker, 64.0),
        row(format!("ingest's memory, {CONNECTIONS} connections"), of_ingest, 56.0),
    ];
    Ok(rows.into_iter().flatten().collect())
}

/// Reads all devices through the index engine; returns devices a second.
async fn raw_scan(index: &dyn Index, loaded: &LoadedApp) -> anyhow::Result<f64> {
    let app = AppKey::first(APP.parse()?);
    let extent = index.extent(&app).await?;
    let started = Instant::now();
    let reads = extent.iter().map(|range| read(index, &app, *range));
    let found: usize = stream::iter(reads)
        .buffer_unordered(CONCURRENT_READS)
        .try_fold(0, |sum, found| async move { Ok(sum + found) })
        .await?;
    ensure!(found == loaded.size, "{found} devices read in place of {}", loaded.size);
    Ok(found as f64 / started.elapsed().as_secs_f64())
}

async fn read(index: &dyn Index, app: &AppKey, mut range: SlotRange) -> anyhow::Result<usize> {
    let (all_devices, now) = (Targeting::all_devices(), UnixMillis::now());
    let mut found = 0;
    loop {
        let scanned = index
            .scan(
                app,
                range,
                Selection {
                    carrier: TransportKind::Discard.into(),
                    targeting: &all_devices,
                    registered_by: now,
                },
                TargetFields::Address,
                BATCH,
            )
            .await?;
        found += scanned.items.len();
        match scanned.next {
            Some(next) => range.from = next,
            None => return Ok(found),
        }
    }
}
