//! A broadcast to the transport `discard` with ledger and checkpoints, and the memory that the
//! programs take meanwhile.

use std::time::Duration;

use anyhow::ensure;
use futures::{StreamExt, TryStreamExt, stream};
use push_index::Index;
use push_model::{app::AppKey, slots::SlotRange, targeting::Targeting, time::UnixMillis};
use push_tests::stack::APP;
use tokio::time::Instant;

use crate::{
    crowd, ingest,
    load::{Connection, Rounds, broadcast, ordinary_push},
    report::{Figure, Row, Target},
    world::{Crowd, World, peak_memory},
};

/// How often the ledger of a broadcast is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A broadcast takes less.
pub(crate) const BROADCAST: Duration = Duration::from_secs(600);
/// Pages that the raw reader has in work at once, and their size: as a worker by default.
const AT_ONCE: usize = 4;
const PAGE: usize = 1000;
/// Connections of the load on `ingest`.
const CONNECTIONS: usize = 256;

pub(crate) async fn run(world: &World) -> anyhow::Result<Vec<Row>> {
    let crowd = world.big().await?;
    let worker = crowd.stack.worker(&[]).await;
    let mut producer = crowd.producer().connect().await?;
    let index = crowd.index().await?;
    let mut rounds = Rounds::default();
    for _ in 0..world.sizes.rounds {
        let figure = one_broadcast(&mut producer, crowd.size).await?;
        let ceiling = raw_scan(&*index, crowd).await?;
        rounds.add(figure, ceiling);
    }
    ensure!(worker.stop().await.success(), "the worker did not stop well");
    let (figure, ceiling, ratio) = rounds.medians();
    Ok(vec![Row {
        what: format!("broadcast to discard, {} devices", crowd.size),
        figure: Figure::new(figure, "devices/s"),
        ceiling: Some(Figure::new(ceiling, "devices/s")),
        ratio: Some(ratio),
        target: Target::AtLeast(1_000_000.0),
        how: format!(
            "{} broadcasts, one worker, from the POST to the ledger's `done`, a checkpoint every \
             {PAGE} devices. Ceiling, in turn: reading all devices from the same index, \
             {AT_ONCE} pages of {PAGE} at once, without sending or ledger",
            world.sizes.rounds
        ),
    }])
}

/// Resident memory of both programs under load.
pub(crate) async fn memory(world: &World) -> anyhow::Result<Vec<Row>> {
    let crowd = world.big().await?;
    let worker = crowd.stack.worker(&[]).await;
    let mut producer = crowd.producer().connect().await?;
    one_broadcast(&mut producer, crowd.size).await?;
    let of_worker = peak_memory(worker.id());
    ensure!(worker.stop().await.success(), "the worker did not stop well");

    let service = world.empty().await?;
    let body = ordinary_push(&crowd::client_id(1));
    service.producer().wrk(CONNECTIONS, world.sizes.load, &body).await?;
    let of_ingest = peak_memory(service.stack.ingest().id());
    ingest::forget_jobs(&world.amqp().await?, &service.stack).await?;

    let row = |what: String, memory: Option<f64>, target| {
        memory.map(|memory| Row {
            what,
            figure: Figure::new(memory, "MB"),
            ceiling: None,
            ratio: None,
            target: Target::AtMost(target),
            how: "the most the process ever had resident (VmHWM)".to_owned(),
        })
    };
    let rows = [
        row(format!("worker's memory, broadcast to {} devices", crowd.size), of_worker, 150.0),
        row(format!("ingest's memory, {CONNECTIONS} connections"), of_ingest, 64.0),
    ];
    Ok(rows.into_iter().flatten().collect())
}

/// Devices a second.
pub(crate) async fn one_broadcast(
    producer: &mut Connection,
    devices: usize,
) -> anyhow::Result<f64> {
    let started = Instant::now();
    let id = producer.push(&broadcast()).await?;
    producer.wait_until_sent(&id, devices, LOOK_EVERY, BROADCAST).await?;
    Ok(devices as f64 / started.elapsed().as_secs_f64())
}

/// Devices a second.
async fn raw_scan(index: &dyn Index, crowd: &Crowd) -> anyhow::Result<f64> {
    let app = AppKey::first(APP.parse()?);
    let extent = index.extent(&app).await?;
    let started = Instant::now();
    let reads = extent.iter().map(|slice| read(index, &app, *slice));
    let found: usize = stream::iter(reads)
        .buffer_unordered(AT_ONCE)
        .try_fold(0, |sum, found| async move { Ok(sum + found) })
        .await?;
    ensure!(found == crowd.size, "{found} devices read in place of {}", crowd.size);
    Ok(found as f64 / started.elapsed().as_secs_f64())
}

async fn read(index: &dyn Index, app: &AppKey, mut slice: SlotRange) -> anyhow::Result<usize> {
    let (everyone, now) = (Targeting::everyone(), UnixMillis::now());
    let mut found = 0;
    loop {
        let page = index.scan(app, slice, &everyone, now, PAGE).await?;
        found += page.items.len();
        match page.next {
            Some(next) => slice.from = next,
            None => return Ok(found),
        }
    }
}
