//! Devices a second of more and more workers, when a provider takes its time for each batch: the
//! workers wait, so one machine can run many.

use std::time::Duration;

use anyhow::ensure;

use crate::{
    fanout,
    report::{Figure, Row, Target},
    world::World,
};

/// What the provider takes for a batch.
const LATENCY: Duration = Duration::from_millis(50);
/// Devices of a batch: few, so that waiting is all that a worker does.
const BATCH: usize = 100;
const WORKERS: [usize; 4] = [1, 2, 4, 8];

pub(crate) async fn run(world: &World) -> anyhow::Result<Vec<Row>> {
    let crowd = world.empty().await?;
    let mut rows = Vec::new();
    let mut alone = None;
    for count in WORKERS {
        // As much for each worker whatever their number, so that every run takes as long.
        let devices = world.sizes.scaled * count;
        let producer = crowd.add_app(&format!("scaled-{count}"), devices).await?;
        let (latency, batch) = (format!("{}ms", LATENCY.as_millis()), BATCH.to_string());
        let mut workers = Vec::new();
        for _ in 0..count {
            let flags = ["--discard-latency", &latency, "--batch", &batch];
            workers.push(crowd.stack.worker(&flags).await);
        }
        let rate = fanout::one_broadcast(&mut producer.connect().await?, devices).await?;
        for worker in workers {
            ensure!(worker.stop().await.success(), "a worker did not stop well");
        }
        let one = *alone.get_or_insert(rate);
        let linear = one * count as f64;
        rows.push(Row {
            what: format!("slow provider, {count} worker{}", if count == 1 { "" } else { "s" }),
            figure: Figure::new(rate, "devices/s"),
            ceiling: Some(Figure::new(linear, "devices/s")),
            ratio: Some(rate / linear),
            target: if count == 1 { Target::None } else { Target::RatioAtLeast(0.90) },
            how: format!(
                "{} devices for each worker, {BATCH} a batch, {LATENCY:?} a batch. Ceiling: one \
                 worker's rate times {count}",
                world.sizes.scaled
            ),
        });
    }
    Ok(rows)
}
