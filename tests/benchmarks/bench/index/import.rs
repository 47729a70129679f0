//! Importing devices: how fast it is, and how much memory they take.

use push_tests::{servers::Redis, servers::redis_connection};
use tokio::time::Instant;

use crate::{
    report::{Figure, Row, Target},
    setup::{Environment, LoadedApp, population},
};

/// Writes of one pipeline.
const PIPELINE: usize = 1000;
/// The bytes that a device takes in the index, without its id.
const VALUE: usize = 60;

/// Devices a second through `pushctl device import`.
pub(crate) async fn speed(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let apps = [env.small_app().await?, env.big_app().await?];
    let ceiling = raw_writes(env.sizes.raw_writes).await?;
    let row = |loaded: &LoadedApp| {
        let figure = loaded.size as f64 / loaded.import.as_secs_f64();
        Row {
            what: format!(
                "import, {} devices",
                Figure::new(loaded.size as f64, "").to_string().trim()
            ),
            figure: Figure::new(figure, "devices/s"),
            ceiling: Some(Figure::new(ceiling, "writes/s")),
            ratio: Some(figure / ceiling),
            target: Target::RatioAtLeast(0.85),
            how: format!(
                "{} new devices from a file, start and end of pushctl included. Ceiling: one SET \
                 of {VALUE} bytes under each client id, {PIPELINE} in a pipeline, by one connection",
                loaded.size
            ),
        }
    };
    Ok(apps.into_iter().map(row).collect())
}

/// Bytes of Redis for one device.
pub(crate) async fn memory(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for loaded in [env.small_app().await?, env.big_app().await?] {
        rows.push(Row {
            what: format!("index memory, {} devices", loaded.size),
            target: Target::AtMost(80.0),
            how: "used_memory of Redis after the import less before; 32-character ids, six \
                  attributes"
                .to_owned(),
            ..Row::alone(Figure::new(loaded.memory as f64 / loaded.size as f64, "bytes/device"))
        });
    }
    Ok(rows)
}

async fn raw_writes(count: usize) -> anyhow::Result<f64> {
    let redis = Redis::start().await?;
    let client = redis::Client::open(redis.url())?;
    let mut connection = redis_connection(&client).await?;
    let value = [b'x'; VALUE];
    let started = Instant::now();
    for from in (0..count).step_by(PIPELINE) {
        let mut pipe = redis::pipe();
        for number in from..count.min(from + PIPELINE) {
            pipe.set(population::client_id(number), &value[..]).ignore();
        }
        pipe.query_async::<()>(&mut connection).await?;
    }
    Ok(count as f64 / started.elapsed().as_secs_f64())
}
