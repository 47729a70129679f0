//! The cost of many people who watch the page "Now" of the console while a broadcast runs: to the stores, and to
//! a push to one device.

use std::time::Duration;

use push_mqtt::MqttUrl;
use push_tests::stack::APP;
use tokio::time::{Instant, sleep};

use super::{arrivals::Listener, isolation::BackgroundBroadcasts};
use crate::{
    load::{broadcasts, pushes::broadcast, viewers::Console},
    measure::{
        memory::commands,
        stats::{Rounds, quantile},
    },
    report::{Row, Target},
    setup::{Environment, LoadedApp, Workers},
};

/// The viewers.
const MANY: usize = 100;
/// The time over which requests are counted: each stream of events ends once and is asked for again.
const COUNTED: Duration = Duration::from_secs(40);
/// The pace that keeps a broadcast open meanwhile, in devices a second.
const PACE: &str = "1000";
/// Pushes are measured in shorter turns than elsewhere, and in so many times more of them.
const TURNS: usize = 4;
/// The shortest turn: each viewer gets a few events, of which there is one a second.
const TURN: Duration = Duration::from_secs(4);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(crate) async fn run(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let loaded = env.big_app().await?;
    let console = Console::start(&loaded.stack).await?;
    let rows = vec![latency(env, loaded, &console).await?, requests(loaded, &console).await?];
    console.stop().await?;
    Ok(rows)
}

/// Measures so many pushes, and others until the turn is over.
async fn turn(
    listener: &mut Listener,
    count: usize,
    times: &mut Vec<Duration>,
) -> anyhow::Result<()> {
    let began = Instant::now();
    while began.elapsed() < TURN {
        times.extend(listener.arrivals(count).await?);
    }
    Ok(())
}

/// The tail of pushes to one device.
async fn latency(env: &Environment, loaded: &LoadedApp, console: &Console) -> anyhow::Result<Row> {
    let broker: MqttUrl = env.mqtt_url().await?.parse()?;
    let workers = Workers::start(&loaded.stack, 1).await;
    let mut listener = Listener::open(loaded, &broker, "watched").await?;
    let background = BackgroundBroadcasts::start(loaded).await?;
    let (turns, count) = (env.sizes.rounds * TURNS, env.sizes.isolated);
    let (mut alone, mut watched) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        turn(&mut listener, count, &mut alone).await?;
        let viewers = console.watch(MANY).await?;
        turn(&mut listener, count, &mut watched).await?;
        viewers.leave(2)?;
    }
    background.stop().await?;
    workers.stop().await?;
    let mut tails = Rounds::default();
    tails.add(quantile(&mut watched, 0.99), quantile(&mut alone, 0.99));
    Ok(Row {
        what: format!("one-device push, p99, {MANY} viewers of Now"),
        target: Target::RatioAtMost(1.1),
        how: format!(
            "{turns} x {count} pushes, from the POST to the arrival at an MQTT device, while broadcasts to {} \
             devices run and {MANY} pages follow them. Ceiling, in turn: the same, without a page",
            loaded.size
        ),
        ..tails.row("ms", "ms")
    })
}

/// The commands that Redis gets for the viewers. Without a worker, as its own commands would hide them; a
/// broadcast is open.
async fn requests(loaded: &LoadedApp, console: &Console) -> anyhow::Result<Row> {
    loaded.stack.pushctl(&["app", "set", APP, "--pace", PACE]).await;
    let workers = Workers::start(&loaded.stack, 1).await;
    let mut pushes = loaded.producer().connect().await?;
    let id = pushes.push(&broadcast()).await?;
    while pushes.ledger(&id).await?["sent"].as_u64().unwrap_or(0) == 0 {
        sleep(POLL_INTERVAL).await;
    }
    workers.stop().await?;
    let mut counted = Vec::new();
    for count in [0, 1, MANY] {
        // The first look of a viewer is not among those that are counted.
        let viewers = console.watch(count).await?;
        let before = commands(&loaded.redis).await?;
        sleep(COUNTED).await;
        counted.push(commands(&loaded.redis).await? - before);
        viewers.leave(COUNTED.as_secs() / 2)?;
    }
    loaded.stack.pushctl(&["app", "set", APP, "--pace", "none"]).await;
    let workers = Workers::start(&loaded.stack, 1).await;
    pushes.wait_until_sent(&id, loaded.size, POLL_INTERVAL, broadcasts::TIMEOUT).await?;
    workers.stop().await?;
    let [idle, one, many] = counted[..] else { anyhow::bail!("three counts") };
    let a_second = |commands: u64| commands.saturating_sub(idle) as f64 / COUNTED.as_secs_f64();
    let mut rounds = Rounds::default();
    rounds.add(a_second(many), a_second(one));
    Ok(Row {
        what: format!("requests to Redis, {MANY} viewers of Now"),
        target: Target::RatioAtMost(1.1),
        how: format!(
            "commands in {} s beyond those without a viewer, while a broadcast is open. Ceiling, before: one viewer",
            COUNTED.as_secs()
        ),
        ..rounds.row("/s", "/s")
    })
}
