//! The delay that a broadcast over FCM causes to a push to one phone of the same app.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::{
    sync::mpsc::Receiver,
    time::{Instant, timeout},
};

use super::fcm::{done, wait_for};
use crate::{
    ceiling::raw_http2_client::WINDOW,
    load::{
        phone_provider::Arrival,
        producer::Connection,
        pushes::{broadcast, ordinary_push},
    },
    measure::stats::{Rounds, quantile},
    report::{Row, Target},
    setup::{Environment, Phones, phones::WATCHED_CLIENT},
};

/// The deadline of an arrival.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);
/// Pushes before the first measurement.
const WARM_UP: usize = 20;

/// The flags of a worker, what they mean, and the target.
type Case = (&'static [&'static str], &'static str, Target);

const CASES: [Case; 2] = [
    (&[], "at FCM's quota", Target::RatioAtMost(1.5)),
    (&["--fcm-quota", "0"], "without a quota", Target::None),
];

pub(super) async fn run(env: &Environment, phones: &Phones) -> anyhow::Result<Vec<Row>> {
    phones.provider.allow_streams(WINDOW as u32);
    let mut rows = Vec::new();
    for (flags, quota, target) in CASES {
        let worker = phones.worker(flags).await;
        let mut phone =
            WatchedPhone { pushes: phones.connect().await?, arrivals: phones.provider.watch() };
        let mut producer = phones.connect().await?;
        phone.delays(WARM_UP).await?;
        let (mut tails, mut middles) = (Rounds::default(), Rounds::default());
        for _ in 0..env.sizes.rounds {
            let mut idle = phone.delays(env.sizes.isolated).await?;
            let id = producer.push(&broadcast()).await?;
            wait_for(&mut producer, &id, 1).await?;
            let mut busy = phone.delays_until(&mut producer, &id, env.sizes.isolated).await?;
            done(&mut producer, phones, &id).await?;
            tails.add(quantile(&mut busy, 0.99), quantile(&mut idle, 0.99));
            middles.add(quantile(&mut busy, 0.5), quantile(&mut idle, 0.5));
        }
        ensure!(worker.stop().await.success(), "the worker did not stop well");
        let row = |what: &str, rounds: &Rounds, target| Row {
            what: format!("push to one phone during a broadcast {quota}, {what}"),
            target,
            how: format!(
                "{} x up to {} pushes, from the POST to the arrival at FCM, during a broadcast to {} \
                 phones of the same app, one worker. Ceiling, in turn: the same, idle",
                env.sizes.rounds, env.sizes.isolated, phones.size
            ),
            ..rounds.row("ms", "ms")
        };
        rows.push(row("p99", &tails, target));
        rows.push(row("p50", &middles, Target::None));
    }
    Ok(rows)
}

/// The phone whose requests are reported, and a connection that pushes to it.
struct WatchedPhone {
    pushes: Connection,
    arrivals: Receiver<Arrival>,
}

impl WatchedPhone {
    /// Pushes one after the other, and returns how long each took to arrive.
    async fn delays(&mut self, count: usize) -> anyhow::Result<Vec<Duration>> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            times.push(self.delay().await?);
        }
        Ok(times)
    }

    /// The same, as long as a broadcast goes on.
    async fn delays_until(
        &mut self,
        producer: &mut Connection,
        id: &str,
        most: usize,
    ) -> anyhow::Result<Vec<Duration>> {
        let mut times = Vec::with_capacity(most);
        while times.len() < most {
            let time = self.delay().await?;
            // One that ended after the broadcast is not counted.
            if producer.ledger(id).await?["state"] == "done" {
                break;
            }
            times.push(time);
        }
        ensure!(!times.is_empty(), "the broadcast is done before a push arrives");
        Ok(times)
    }

    async fn delay(&mut self) -> anyhow::Result<Duration> {
        let started = Instant::now();
        let id = self.pushes.push(&ordinary_push(WATCHED_CLIENT)).await?;
        let arrival = async {
            loop {
                let arrival = self.arrivals.recv().await.context("no provider")?;
                // The broadcast reaches this phone as well.
                if String::from_utf8_lossy(&arrival.body).contains(&id) {
                    return anyhow::Ok(arrival.at.duration_since(started));
                }
            }
        };
        timeout(ARRIVAL_TIMEOUT, arrival).await.context("a push does not arrive")?
    }
}
