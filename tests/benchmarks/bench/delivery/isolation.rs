//! The delay that a large broadcast causes to others: a push to one device, and a broadcast of another app,
//! with and without broadcasts to the larger app.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use push_mqtt::MqttUrl;
use push_tests::stack::APP;
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::arrivals::Listener;
use crate::{
    load::{broadcasts, producer::Connection, pushes::broadcast},
    measure::stats::{Rounds, quantile},
    report::{Row, Target},
    setup::{Environment, LoadedApp, Workers},
};

/// Interval of reading the ledger of the other app's broadcast.
const POLL_INTERVAL: Duration = Duration::from_millis(3);
/// The pause after each of its broadcasts.
const PAUSE: Duration = Duration::from_millis(20);
/// The other app.
const OTHER: &str = "other";
const WORKERS: [usize; 2] = [1, 2];

/// Pushes to one device.
pub(crate) async fn one_device(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let loaded = env.big_app().await?;
    let broker: MqttUrl = env.mqtt_url().await?.parse()?;
    let mut rows = Vec::new();
    for count in WORKERS {
        let workers = Workers::start(&loaded.stack, count).await;
        let mut listener = Listener::open(loaded, &broker, &format!("one-{count}")).await?;
        let (mut tails, mut middles) = (Rounds::default(), Rounds::default());
        for _ in 0..env.sizes.rounds {
            let mut idle = listener.arrivals(env.sizes.isolated).await?;
            let background = BackgroundBroadcasts::start(loaded).await?;
            let busy = listener.arrivals(env.sizes.isolated).await;
            background.stop().await?;
            let mut busy = busy?;
            tails.add(quantile(&mut busy, 0.99), quantile(&mut idle, 0.99));
            middles.add(quantile(&mut busy, 0.5), quantile(&mut idle, 0.5));
        }
        workers.stop().await?;
        let row = |what: &str, rounds: &Rounds, target| Row {
            what: format!("one-device push, {what}, {}", workers_text(count)),
            target,
            how: format!(
                "{} x {} pushes, from the POST to the arrival at an MQTT device, while \
                     broadcasts to {} devices run. Ceiling, in turn: the same, idle",
                env.sizes.rounds, env.sizes.isolated, loaded.size
            ),
            ..rounds.row("ms", "ms")
        };
        rows.push(row("p99", &tails, Target::RatioAtMost(3.0)));
        rows.push(row("p50", &middles, Target::None));
    }
    Ok(rows)
}

/// Broadcasts of another app.
pub(crate) async fn other_app(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let loaded = env.big_app().await?;
    let producer = loaded.add_app(OTHER, env.sizes.other).await?;
    let mut rows = Vec::new();
    for count in WORKERS {
        let workers = Workers::start(&loaded.stack, count).await;
        let mut pushes = producer.connect().await?;
        other_broadcasts(&mut pushes, env.sizes.other, 2).await?;
        let mut rounds = Rounds::default();
        for _ in 0..env.sizes.rounds {
            let mut idle = other_broadcasts(&mut pushes, env.sizes.other, env.sizes.fair).await?;
            let background = BackgroundBroadcasts::start(loaded).await?;
            let busy = other_broadcasts(&mut pushes, env.sizes.other, env.sizes.fair).await;
            background.stop().await?;
            rounds.add(quantile(&mut busy?, 0.5), quantile(&mut idle, 0.5));
        }
        workers.stop().await?;
        rows.push(Row {
            what: format!("another app's broadcast, {}", workers_text(count)),
            target: Target::RatioAtMost(2.5),
            how: format!(
                "median of {} broadcasts to {} devices, from the POST to `done`, while \
                 broadcasts to {} devices run. Ceiling, in turn: the same, idle",
                env.sizes.fair, env.sizes.other, loaded.size
            ),
            ..rounds.row("ms", "ms")
        });
    }
    Ok(rows)
}

fn workers_text(count: usize) -> String {
    if count == 1 { "1 worker".to_owned() } else { format!("{count} workers") }
}

async fn other_broadcasts(
    pushes: &mut Connection,
    devices: usize,
    count: usize,
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let started = Instant::now();
        let id = pushes.push(&broadcast()).await?;
        pushes.wait_until_sent(&id, devices, POLL_INTERVAL, broadcasts::TIMEOUT).await?;
        times.push(started.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    Ok(times)
}

/// Broadcasts to the larger app, one after the other, in the background.
pub(super) struct BackgroundBroadcasts {
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl BackgroundBroadcasts {
    /// Returns once the first has sent to a device.
    pub(super) async fn start(loaded: &LoadedApp) -> anyhow::Result<Self> {
        let (stop, started) = (CancellationToken::new(), Arc::new(tokio::sync::Notify::new()));
        let (stopped, under_way) = (stop.clone(), Arc::clone(&started));
        let (mut connection, size) = (loaded.producer().connect().await?, loaded.size);
        let task = tokio::spawn(async move {
            while !stopped.is_cancelled() {
                let id = connection.push(&broadcast()).await?;
                loop {
                    let ledger = connection.ledger(&id).await?;
                    if ledger["sent"].as_u64().unwrap_or(0) > 0 {
                        break;
                    }
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                under_way.notify_one();
                connection.wait_until_sent(&id, size, PAUSE, broadcasts::TIMEOUT).await?;
            }
            Ok(())
        });
        timeout(broadcasts::TIMEOUT, started.notified())
            .await
            .with_context(|| format!("no broadcast of {APP} gets under way"))?;
        Ok(Self { stop, task })
    }

    /// Returns once the last has ended.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        self.task.await?
    }
}
