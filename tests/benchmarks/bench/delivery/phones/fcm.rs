//! Broadcasts over FCM, as a share of a raw client with as many connections and requests in flight.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    ceiling::raw_http2_client::{self, WINDOW},
    load::{broadcasts, producer::Connection, pushes::broadcast},
    measure::{cpu_time::CpuMeter, memory::resident_memory, stats::Rounds},
    report::{Figure, Row, Target},
    setup::{Environment, Phones},
};

/// Numbers of connections, and the target share of the raw client's rate on each.
const CONNECTIONS: [(usize, f64); 2] = [(1, 0.85), (4, 0.80)];
/// One device in this many is never answered.
const SILENT_ONE_IN: u32 = 1000;
/// Rounds with such devices: each waits until they are given up and tried again.
const SILENT_ROUNDS: usize = 2;
/// Time between two looks at the ledger.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A worker sends as fast as it can.
const NO_QUOTA: [&str; 2] = ["--fcm-quota", "0"];

pub(super) async fn rates(env: &Environment, phones: &Phones) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (connections, target) in CONNECTIONS {
        phones.provider.allow_streams((WINDOW / connections) as u32);
        let worker = phones.worker(&NO_QUOTA).await;
        let mut producer = phones.connect().await?;
        let memory = growth(&mut producer, phones, worker.id()).await?;
        let (mut rates, mut times) = (Rounds::default(), Rounds::default());
        for _ in 0..env.sizes.rounds {
            let meter = CpuMeter::start([worker.id()]);
            let figure = broadcasts::send_one(&mut producer, phones.size).await?;
            let [processor] = meter.per_request(phones.size as f64).unwrap_or([f64::NAN]);
            let raw = raw_http2_client::measure(&phones.provider, phones.size, connections).await?;
            rates.add(figure, raw.rate);
            times.add(processor, raw.processor);
        }
        ensure!(worker.stop().await.success(), "the worker did not stop well");
        let over = match connections {
            1 => "1 connection".to_owned(),
            several => format!("{several} connections"),
        };
        rows.push(Row {
            what: format!("broadcast over FCM, {over}"),
            target: Target::RatioAtLeast(target),
            how: format!(
                "{} devices, one worker without a quota, {} rounds. Ceiling, in turn: a program that only \
                 sends as many equal requests with hyper's client, {WINDOW} in flight in all",
                phones.size, env.sizes.rounds
            ),
            ..rates.row("devices/s", "requests/s")
        });
        rows.push(Row {
            what: format!("processor time of an FCM device, {over}"),
            how: "of the worker. Ceiling: of the raw client".to_owned(),
            ..times.row("us", "us")
        });
        rows.extend(memory.filter(|_| connections == 1));
    }
    Ok(rows)
}

/// Measures the worker's memory near the beginning of a broadcast and at its end.
async fn growth(
    producer: &mut Connection,
    phones: &Phones,
    worker: u32,
) -> anyhow::Result<Option<Row>> {
    let id = producer.push(&broadcast()).await?;
    wait_for(producer, &id, phones.size / 10).await?;
    let early = resident_memory(worker);
    done(producer, phones, &id).await?;
    let Some((early, late)) = early.zip(resident_memory(worker)) else { return Ok(None) };
    Ok(Some(Row {
        what: "worker's memory at the end of an FCM broadcast".to_owned(),
        ceiling: Some(Figure::new(early, "MB")),
        ratio: Some(late / early),
        target: Target::RatioAtMost(1.1),
        how: format!(
            "resident, {} devices, the first broadcast of the worker. Ceiling: when a tenth was sent",
            phones.size
        ),
        ..Row::alone(Figure::new(late, "MB"))
    }))
}

/// The rate while some devices are never answered.
pub(super) async fn silence(phones: &Phones) -> anyhow::Result<Row> {
    phones.provider.allow_streams(WINDOW as u32);
    let worker = phones.worker(&NO_QUOTA).await;
    let mut producer = phones.connect().await?;
    let silent = phones.size.div_ceil(SILENT_ONE_IN as usize);
    let answered = phones.size - silent;
    broadcasts::send_one(&mut producer, phones.size).await?;
    let mut rounds = Rounds::default();
    for _ in 0..SILENT_ROUNDS {
        let (undisturbed, id) = until_sent(&mut producer, answered).await?;
        done(&mut producer, phones, &id).await?;
        phones.provider.silence_one_in(SILENT_ONE_IN);
        let (figure, id) = until_sent(&mut producer, answered).await?;
        phones.provider.silence_one_in(0);
        // The silent devices are tried again.
        done(&mut producer, phones, &id).await?;
        rounds.add(figure, undisturbed);
    }
    ensure!(worker.stop().await.success(), "the worker did not stop well");
    Ok(Row {
        what: format!("broadcast over FCM, one device in {SILENT_ONE_IN} never answered"),
        target: Target::RatioAtLeast(0.8),
        how: format!(
            "from the POST until all but {silent} devices are sent to, 1 connection, one worker, \
             {SILENT_ROUNDS} rounds. Ceiling, in turn: the same, all answered"
        ),
        ..rounds.row("devices/s", "devices/s")
    })
}

/// Broadcasts, and returns the devices a second until so many are sent to, and the message.
async fn until_sent(producer: &mut Connection, devices: usize) -> anyhow::Result<(f64, String)> {
    let started = Instant::now();
    let id = producer.push(&broadcast()).await?;
    wait_for(producer, &id, devices).await?;
    Ok((devices as f64 / started.elapsed().as_secs_f64(), id))
}

/// Waits until a message was sent to all devices.
pub(super) async fn done(
    producer: &mut Connection,
    phones: &Phones,
    id: &str,
) -> anyhow::Result<()> {
    producer.wait_until_sent(id, phones.size, POLL_INTERVAL, broadcasts::TIMEOUT).await
}

/// Waits until a message was sent to so many devices.
pub(super) async fn wait_for(
    producer: &mut Connection,
    id: &str,
    devices: usize,
) -> anyhow::Result<()> {
    let wait = async {
        while producer.ledger(id).await?["sent"].as_u64().unwrap_or(0) < devices as u64 {
            sleep(POLL_INTERVAL).await;
        }
        anyhow::Ok(())
    };
    timeout(broadcasts::TIMEOUT, wait).await.context("a broadcast does not get on")?
}
