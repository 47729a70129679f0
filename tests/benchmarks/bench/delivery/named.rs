//! Pushes that name as many devices as they may: devices sent to a second, as a share of the device
//! records that a plain Redis client reads.

use std::time::Duration;

use anyhow::ensure;
use futures::{StreamExt, TryStreamExt, stream};
use push_model::app::AppKey;
use push_tests::{servers::redis_connection, stack::APP};
use redis::{Cmd, Value};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    load::{producer::message_id, pushes::push_to},
    measure::{
        cpu_time::CpuMeter,
        stats::{Rounds, median},
    },
    report::{Figure, Row, Target},
    setup::{Environment, LoadedApp, Workers, population},
};

/// Devices that a push names: ingest's default maximum.
const NAMED: usize = 1000;
/// Connections of the producers: enough that the worker always has pushes waiting.
const CONNECTIONS: usize = 8;
/// Records that the plain client asks for in one request, and its requests in flight.
const REQUEST_RECORDS: usize = 500;
const REQUESTS_IN_FLIGHT: usize = 8;
/// Slots whose records are in one string.
const CHUNK: u32 = 16;
/// Time for which records are read before the first round.
const WARM_UP: Duration = Duration::from_secs(1);

pub(crate) async fn run(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let loaded = env.big_app().await?;
    let pushes = env.sizes.named;
    let devices = pushes * NAMED;
    let requests = requests(loaded, pushes).await?;
    let reads = reads(loaded, devices).await?;
    let client = redis::Client::open(loaded.redis.url())?;
    let raw = redis_connection(&client).await?;

    let workers = Workers::start(&loaded.stack, 1).await;
    let (worker, redis) = (workers.ids()[0], loaded.redis.id());
    let mut rounds = Rounds::default();
    let mut costs: [Vec<f64>; 3] = Default::default();
    let warm_up = Instant::now();
    while warm_up.elapsed() < WARM_UP {
        read_all(&raw, &reads).await?;
    }
    for _ in 0..env.sizes.rounds {
        let before = workers.sent().await;
        let cpu = CpuMeter::start([worker, redis]);
        let started = Instant::now();
        push_all(loaded, &requests).await?;
        let (sent, end) = workers.wait_until_sent(before + devices as f64).await?;
        let delivered = sent - before;
        let of_worker = cpu.per_request(delivered);
        ensure!(delivered == devices as f64, "{devices} devices, but {delivered} were sent to");
        let cpu = CpuMeter::start([redis]);
        let (found, took) = read_all(&raw, &reads).await?;
        ensure!(found == devices, "{devices} records, but {found} were found");
        rounds.add(delivered / (end - started).as_secs_f64(), found as f64 / took.as_secs_f64());
        let all = of_worker
            .into_iter()
            .flatten()
            .chain(cpu.per_request(found as f64).into_iter().flatten());
        costs.iter_mut().zip(all).for_each(|(costs, cost)| costs.push(cost));
    }
    workers.stop().await?;

    let mut rows = vec![Row {
        what: format!("pushes to {NAMED} named devices"),
        target: Target::RatioAtLeast(0.5),
        how: format!(
            "{} x {pushes} pushes over {CONNECTIONS} connections, one worker, discarded, from the \
             first POST until the last device is settled; {} devices in the app. Ceiling, in turn: \
             a plain client that reads as many records of the same devices, each by an MGET of the \
             string it lies in, {REQUEST_RECORDS} a request, {REQUESTS_IN_FLIGHT} requests in flight",
            env.sizes.rounds, loaded.size
        ),
        ..rounds.row("devices/s", "records/s")
    }];
    if costs.iter().all(|costs| !costs.is_empty()) {
        let [worker, redis, raw] = costs.map(median);
        for (program, figure) in [("worker", worker), ("Redis", redis)] {
            rows.push(Row {
                what: format!("named devices, processor time of {program}"),
                figure: Figure::new(figure, "us/device"),
                ceiling: Some(Figure::new(raw, "us/record")),
                ratio: Some(figure / raw),
                target: Target::None,
                how: "user and system, in the same run. Beside it: that of Redis for the plain \
                      client"
                    .to_owned(),
            });
        }
    }
    Ok(rows)
}

/// The pushes. No two name the same device if the app has enough.
async fn requests(loaded: &LoadedApp, pushes: usize) -> anyhow::Result<Vec<Vec<u8>>> {
    let connection = loaded.producer().connect().await?;
    let request = |push: usize| {
        let numbers = (push * NAMED..(push + 1) * NAMED).map(|number| number % loaded.size);
        connection.push_request(&push_to(&numbers.map(population::client_id).collect::<Vec<_>>()))
    };
    Ok((0..pushes).map(request).collect())
}

/// Sends the pushes over all connections.
async fn push_all(loaded: &LoadedApp, requests: &[Vec<u8>]) -> anyhow::Result<()> {
    let mut producers = JoinSet::new();
    for share in requests.chunks(requests.len().div_ceil(CONNECTIONS)) {
        let (mut connection, share) = (loaded.producer().connect().await?, share.to_vec());
        producers.spawn(async move {
            for request in share {
                message_id(&connection.exchange(&request).await?)?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = producers.join_next().await {
        done??;
    }
    Ok(())
}

/// Requests for `records` records. Named devices are spread over the index, so each record is read
/// from another string.
async fn reads(loaded: &LoadedApp, records: usize) -> anyhow::Result<Vec<Cmd>> {
    let extent = loaded.index().await?.extent(&AppKey::first(APP.parse()?)).await?;
    let mut strings = Vec::new();
    for range in extent {
        let shard = format!("{}:{{{APP}/{}}}", loaded.stack.namespace, range.shard);
        strings.extend((0..range.to.div_ceil(CHUNK)).map(|chunk| format!("{shard}:d{chunk}")));
    }
    ensure!(!strings.is_empty(), "the app has no devices");
    let keys: Vec<&String> =
        (0..records).map(|number| &strings[population::scatter(number, strings.len())]).collect();
    let read = |keys: &[&String]| {
        let mut read = redis::cmd("MGET");
        read.arg(keys);
        read
    };
    Ok(keys.chunks(REQUEST_RECORDS).map(read).collect())
}

/// Reads the records and discards them; returns how many were found and how long it took.
async fn read_all(
    raw: &redis::aio::MultiplexedConnection,
    reads: &[Cmd],
) -> anyhow::Result<(usize, Duration)> {
    let started = Instant::now();
    let found = stream::iter(reads)
        .map(|read| {
            let mut raw = raw.clone();
            async move { read.query_async::<Vec<Value>>(&mut raw).await }
        })
        .buffer_unordered(REQUESTS_IN_FLIGHT)
        .try_fold(0, |sum, found| async move {
            let found = found.iter().filter(|value| matches!(value, Value::BulkString(_))).count();
            Ok(sum + found)
        })
        .await?;
    Ok((found, started.elapsed()))
}
