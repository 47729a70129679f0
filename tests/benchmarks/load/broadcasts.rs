//! One broadcast, measured from the POST until it is done.

use std::time::Duration;

use tokio::time::Instant;

use super::{producer::Connection, pushes::broadcast};

/// The deadline of a broadcast.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(600);
/// Interval of reading the ledger of a broadcast.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Sends a broadcast to an app of `devices` devices; returns devices a second.
pub(crate) async fn send_one(producer: &mut Connection, devices: usize) -> anyhow::Result<f64> {
    let started = Instant::now();
    let id = producer.push(&broadcast()).await?;
    producer.wait_until_sent(&id, devices, POLL_INTERVAL, TIMEOUT).await?;
    Ok(devices as f64 / started.elapsed().as_secs_f64())
}
