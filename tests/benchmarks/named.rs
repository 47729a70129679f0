//! Pushes that name as many devices as they may: devices settled a second, as a share of what a
//! plain client reads of their records.

use std::time::Duration;

use anyhow::ensure;
use futures::{StreamExt, TryStreamExt, stream};
use push_model::app::AppKey;
use push_tests::stack::APP;
use redis::{Cmd, Value};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    crowd,
    load::{Rounds, median, push_to},
    processor::Spent,
    report::{Figure, Row, Target},
    workers::Workers,
    world::{Crowd, World},
};

/// Devices that a push names: the most by default.
const NAMED: usize = 1000;
/// Connections of the producers: enough that the worker always has pushes waiting.
const CONNECTIONS: usize = 8;
/// Records that the plain client asks for in one request, and its requests in flight.
const READ: usize = 500;
const AT_ONCE: usize = 8;
/// Slots whose records are one string.
const CHUNK: u32 = 16;
/// Reading before the first round.
const WARM_UP: Duration = Duration::from_secs(1);

pub(crate) async fn run(world: &World) -> anyhow::Result<Vec<Row>> {
    let crowd = world.big().await?;
    let pushes = world.sizes.named;
    let devices = pushes * NAMED;
    let requests = requests(crowd, pushes).await?;
    let reads = reads(crowd, devices).await?;
    let client = redis::Client::open(crowd.redis.url())?;
    let raw = client.get_multiplexed_async_connection().await?;

    let workers = Workers::start(&crowd.stack, 1).await;
    let (worker, redis) = (workers.ids()[0], crowd.redis.id());
    let mut rounds = Rounds::default();
    let mut costs: [Vec<f64>; 3] = Default::default();
    let warm_up = Instant::now();
    while warm_up.elapsed() < WARM_UP {
        read_all(&raw, &reads).await?;
    }
    for _ in 0..world.sizes.rounds {
        let before = workers.sent().await;
        let spent = Spent::by([worker, redis]);
        let started = Instant::now();
        push_all(crowd, &requests).await?;
        let (sent, end) = workers.until_sent(before + devices as f64).await?;
        let settled = sent - before;
        let of_worker = spent.per(settled);
        ensure!(settled == devices as f64, "{devices} devices, but {settled} were sent to");
        let spent = Spent::by([redis]);
        let (found, took) = read_all(&raw, &reads).await?;
        ensure!(found == devices, "{devices} records, but {found} were found");
        rounds.add(settled / (end - started).as_secs_f64(), found as f64 / took.as_secs_f64());
        let all =
            of_worker.into_iter().flatten().chain(spent.per(found as f64).into_iter().flatten());
        costs.iter_mut().zip(all).for_each(|(costs, cost)| costs.push(cost));
    }
    workers.stop().await?;

    let (figure, ceiling, ratio) = rounds.medians();
    let mut rows = vec![Row {
        what: format!("pushes to {NAMED} named devices"),
        figure: Figure::new(figure, "devices/s"),
        ceiling: Some(Figure::new(ceiling, "records/s")),
        ratio: Some(ratio),
        target: Target::RatioAtLeast(0.6),
        how: format!(
            "{} x {pushes} pushes over {CONNECTIONS} connections, one worker, discarded, from the \
             first POST until the last device is settled; {} devices in the app. Ceiling, in turn: \
             a plain client that reads as many records of the same devices, each by an MGET of the \
             string it lies in, {READ} a request, {AT_ONCE} requests in flight",
            world.sizes.rounds, crowd.size
        ),
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

/// The pushes, each to devices that no other names as far as there are so many.
async fn requests(crowd: &Crowd, pushes: usize) -> anyhow::Result<Vec<Vec<u8>>> {
    let connection = crowd.producer().connect().await?;
    let request = |push: usize| {
        let numbers = (push * NAMED..(push + 1) * NAMED).map(|number| number % crowd.size);
        connection.push_request(&push_to(&numbers.map(crowd::client_id).collect::<Vec<_>>()))
    };
    Ok((0..pushes).map(request).collect())
}

/// Sends the pushes over all connections.
async fn push_all(crowd: &Crowd, requests: &[Vec<u8>]) -> anyhow::Result<()> {
    let mut producers = JoinSet::new();
    for share in requests.chunks(requests.len().div_ceil(CONNECTIONS)) {
        let (mut connection, share) = (crowd.producer().connect().await?, share.to_vec());
        producers.spawn(async move {
            for request in share {
                crate::load::message_id(&connection.exchange(&request).await?)?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = producers.join_next().await {
        done??;
    }
    Ok(())
}

/// Requests for so many records: named devices lie anywhere, so each of them is in another string.
async fn reads(crowd: &Crowd, records: usize) -> anyhow::Result<Vec<Cmd>> {
    let extent = crowd.index().await?.extent(&AppKey::first(APP.parse()?)).await?;
    let mut strings = Vec::new();
    for slice in extent {
        let shard = format!("{}:{{{APP}/{}}}", crowd.stack.namespace, slice.shard);
        strings.extend((0..slice.to.div_ceil(CHUNK)).map(|chunk| format!("{shard}:r{chunk}")));
    }
    ensure!(!strings.is_empty(), "the app has no devices");
    let keys: Vec<&String> =
        (0..records).map(|number| &strings[crowd::scatter(number, strings.len())]).collect();
    let read = |keys: &[&String]| {
        let mut read = redis::cmd("MGET");
        read.arg(keys);
        read
    };
    Ok(keys.chunks(READ).map(read).collect())
}

/// Reads the records and throws them away; gives how many there were and the time it took.
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
        .buffer_unordered(AT_ONCE)
        .try_fold(0, |sum, found| async move {
            let found = found.iter().filter(|value| matches!(value, Value::BulkString(_))).count();
            Ok(sum + found)
        })
        .await?;
    Ok((found, started.elapsed()))
}
