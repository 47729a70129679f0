//! Pushes at a given rate, which wrk cannot do: it sends as many as it can.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio::{
    task::JoinSet,
    time::{Instant, interval_at},
};
use tokio_util::sync::CancellationToken;

use super::producer::{Producer, message_id};

/// Connections that push in turn. With an answer in a millisecond they reach 32,000 pushes a
/// second, more than any rate used here.
const CONNECTIONS: u32 = 32;

/// A load that runs until it is stopped.
pub(crate) struct PacedLoad {
    stop: CancellationToken,
    connections: JoinSet<anyhow::Result<u64>>,
    started: Instant,
}

impl PacedLoad {
    /// Pushes these bodies in turn, `rate` a second.
    pub(crate) async fn start(
        producer: &Producer,
        rate: f64,
        bodies: &[Value],
    ) -> anyhow::Result<Self> {
        let stop = CancellationToken::new();
        let (mut connections, started) = (JoinSet::new(), Instant::now());
        let between = Duration::from_secs_f64(1.0 / rate);
        let writer = producer.connect().await?;
        let requests: Arc<[Vec<u8>]> =
            bodies.iter().map(|body| writer.push_request(body)).collect();
        for number in 0..CONNECTIONS {
            let (stop, requests) = (stop.clone(), Arc::clone(&requests));
            let mut connection = producer.connect().await?;
            let first = Instant::now() + between * number;
            connections.spawn(async move {
                let mut ticks = interval_at(first, between * CONNECTIONS);
                let mut next = requests.iter().cycle().skip(number as usize);
                let mut pushed = 0;
                while stop.run_until_cancelled(ticks.tick()).await.is_some() {
                    let Some(request) = next.next() else { break };
                    message_id(&connection.exchange(request).await?)?;
                    pushed += 1;
                    next.nth(CONNECTIONS as usize - 2);
                }
                Ok(pushed)
            });
        }
        Ok(Self { stop, connections, started })
    }

    /// Stops the load, and returns how many pushes were accepted a second.
    pub(crate) async fn stop(mut self) -> anyhow::Result<f64> {
        self.stop.cancel();
        let mut pushed = 0;
        while let Some(connection) = self.connections.join_next().await {
            pushed += connection??;
        }
        Ok(pushed as f64 / self.started.elapsed().as_secs_f64())
    }
}
