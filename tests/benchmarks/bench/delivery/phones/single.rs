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
/// Pushes of a round, idle and at most as many during a broadcast: the p99 stands on fifteen of them. With a few
/// hundred it would stand on three or four.
const PUSHES: usize = 1500;

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
        phone.delays(WARM_UP, None).await?;
        let (mut tails, mut middles, mut accepted) =
            (Rounds::default(), Rounds::default(), Rounds::default());
        for _ in 0..env.sizes.rounds {
            let mut idle = phone.delays(PUSHES, None).await?;
            let id = producer.push(&broadcast()).await?;
            wait_for(&mut producer, &id, 1).await?;
            let mut busy = phone.delays(PUSHES, Some(&id)).await?;
            done(&mut producer, phones, &id).await?;
            tails.add(quantile(&mut busy.arrived, 0.99), quantile(&mut idle.arrived, 0.99));
            middles.add(quantile(&mut busy.arrived, 0.5), quantile(&mut idle.arrived, 0.5));
            accepted.add(quantile(&mut busy.accepted, 0.99), quantile(&mut idle.accepted, 0.99));
        }
        ensure!(worker.stop().await.success(), "the worker did not stop well");
        let row = |what: &str, to: &str, rounds: &Rounds, target| Row {
            what: format!("push to one phone during a broadcast {quota}, {what}"),
            target,
            how: format!(
                "{} x up to {PUSHES} pushes, from the POST to {to}, during a broadcast to {} phones of the \
                 same app, one worker. Ceiling, in turn: the same, idle",
                env.sizes.rounds, phones.size
            ),
            ..rounds.row("ms", "ms")
        };
        rows.push(row("p99", "the arrival at FCM", &tails, target));
        rows.push(row("p50", "the arrival at FCM", &middles, Target::None));
        rows.push(row("p99 of its acceptance", "its answer", &accepted, Target::None));
    }
    Ok(rows)
}

/// How long pushes took.
#[derive(Default)]
struct Delays {
    /// From the POST to its answer, by when the queue has the push.
    accepted: Vec<Duration>,
    /// From the POST to the arrival at FCM.
    arrived: Vec<Duration>,
}

/// The phone whose requests are reported, and a connection that pushes to it.
struct WatchedPhone {
    pushes: Connection,
    arrivals: Receiver<Arrival>,
}

impl WatchedPhone {
    /// Pushes one after the other, as long as this broadcast goes on if there is one. The ledger is read after each
    /// push in either case, so that idle pushes have the same pauses between them.
    async fn delays(&mut self, most: usize, during: Option<&str>) -> anyhow::Result<Delays> {
        let mut delays = Delays::default();
        while delays.arrived.len() < most {
            let (id, accepted, arrived) = self.push().await?;
            let ledger = self.pushes.ledger(during.unwrap_or(&id)).await?;
            // One that ended after the broadcast is not counted.
            if during.is_some() && ledger["state"] == "done" {
                break;
            }
            delays.accepted.push(accepted);
            delays.arrived.push(arrived);
        }
        ensure!(!delays.arrived.is_empty(), "the broadcast is done before a push arrives");
        Ok(delays)
    }

    /// Pushes, and returns the message, and how long it took to be accepted and to arrive.
    async fn push(&mut self) -> anyhow::Result<(String, Duration, Duration)> {
        let started = Instant::now();
        let id = self.pushes.push(&ordinary_push(WATCHED_CLIENT)).await?;
        let accepted = started.elapsed();
        let arrival = async {
            loop {
                let arrival = self.arrivals.recv().await.context("no provider")?;
                // The broadcast reaches this phone as well.
                if String::from_utf8_lossy(&arrival.body).contains(&id) {
                    return anyhow::Ok(arrival.at.duration_since(started));
                }
            }
        };
        let arrived =
            timeout(ARRIVAL_TIMEOUT, arrival).await.context("a push does not arrive")??;
        Ok((id, accepted, arrived))
    }
}
