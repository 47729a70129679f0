//! Loading devices: how fast, and how much memory they take.

use push_tests::servers::Redis;
use tokio::time::Instant;

use crate::{
    crowd,
    report::{Figure, Row, Target},
    world::{Crowd, World},
};

/// Writes of one pipeline.
const PIPELINE: usize = 1000;
/// What a device is stored as, in bytes: its share of everything, without its id.
const VALUE: usize = 60;

/// Devices a second through `pushctl device import`.
pub(crate) async fn speed(world: &World) -> anyhow::Result<Vec<Row>> {
    let crowds = [world.small().await?, world.big().await?];
    let ceiling = raw_writes(world.sizes.raw_writes).await?;
    let row = |crowd: &Crowd| {
        let figure = crowd.size as f64 / crowd.import.as_secs_f64();
        Row {
            what: format!(
                "import, {} devices",
                Figure::new(crowd.size as f64, "").to_string().trim()
            ),
            figure: Figure::new(figure, "devices/s"),
            ceiling: Some(Figure::new(ceiling, "writes/s")),
            ratio: Some(figure / ceiling),
            target: Target::AtLeast(200_000.0),
            how: format!(
                "{} new devices from a file, start and end of pushctl included. Ceiling: one SET \
                 of {VALUE} bytes under each client id, {PIPELINE} in a pipeline, by one connection",
                crowd.size
            ),
        }
    };
    Ok(crowds.into_iter().map(row).collect())
}

/// Bytes of Redis for one device.
pub(crate) async fn memory(world: &World) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for crowd in [world.small().await?, world.big().await?] {
        rows.push(Row {
            what: format!("index memory, {} devices", crowd.size),
            figure: Figure::new(crowd.memory as f64 / crowd.size as f64, "bytes/device"),
            ceiling: None,
            ratio: None,
            target: Target::AtMost(110.0),
            how: "used_memory of Redis after the import less before; 32-character ids, six \
                  attributes"
                .to_owned(),
        });
    }
    Ok(rows)
}

async fn raw_writes(count: usize) -> anyhow::Result<f64> {
    let redis = Redis::start().await?;
    let client = redis::Client::open(redis.url())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let value = [b'x'; VALUE];
    let started = Instant::now();
    for from in (0..count).step_by(PIPELINE) {
        let mut pipe = redis::pipe();
        for number in from..count.min(from + PIPELINE) {
            pipe.set(crowd::client_id(number), &value[..]).ignore();
        }
        pipe.query_async::<()>(&mut connection).await?;
    }
    Ok(count as f64 / started.elapsed().as_secs_f64())
}
