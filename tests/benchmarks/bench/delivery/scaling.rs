//! Devices a second of one to eight workers with a slow provider: the workers wait for it most of
//! the time, so one machine can run many.

use std::time::Duration;

use anyhow::ensure;

use crate::{
    load::broadcasts,
    report::{Figure, Row, Target},
    setup::Environment,
};

/// How long the provider takes for a batch.
const LATENCY: Duration = Duration::from_millis(50);
/// Devices of a batch: few, so that a worker does little but wait.
const BATCH: usize = 100;
const WORKERS: [usize; 4] = [1, 2, 4, 8];

pub(crate) async fn run(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let loaded = env.empty_app().await?;
    let mut rows = Vec::new();
    let mut alone = None;
    for count in WORKERS {
        // The same number for each worker, so that every run takes equally long.
        let devices = env.sizes.scaled * count;
        let producer = loaded.add_app(&format!("scaled-{count}"), devices).await?;
        let (latency, batch) =
            (format!("discard-latency={}ms", LATENCY.as_millis()), BATCH.to_string());
        let mut workers = Vec::new();
        for _ in 0..count {
            let flags = ["--tune", &latency, "--batch", &batch];
            workers.push(loaded.stack.worker(&flags).await);
        }
        let rate = broadcasts::send_one(&mut producer.connect().await?, devices).await?;
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
                env.sizes.scaled
            ),
        });
    }
    Ok(rows)
}
