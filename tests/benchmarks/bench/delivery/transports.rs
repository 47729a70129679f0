//! Broadcasts to devices of two transports, one of which is slow, silent or dead: the time from the POST
//! until the devices of the other are sent to.

use std::{fmt::Write as _, time::Duration};

use push_tests::{RogueBroker, rogue_broker::Behaviour};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    load::{broadcasts, producer::Connection, pushes::broadcast},
    measure::stats::Rounds,
    report::{Row, Target},
    setup::Environment,
};

/// Devices of the transport that works. Fifty times the others, which cost processor time as well:
/// beside 200,000 they were a tenth of the work, and the ratio could not be 1.1.
const OTHERS: usize = 1_000_000;
/// Devices of the transport that does not.
const TROUBLED: usize = 20_000;
/// The app that has devices of both.
const MIXED: &str = "mixed";
/// Time between two looks at the ledger.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A trouble of the broker, and its behaviour then.
type Trouble = (&'static str, fn(&mut Behaviour));

const TROUBLES: [Trouble; 3] = [
    ("slow (20 answers a second)", |b| b.acks_per_second = Some(20)),
    ("silent", |b| b.withholds_acks = true),
    ("dead", |b| b.refuses_connections = true),
];

pub(crate) async fn run(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let loaded = env.load(OTHERS, "discard").await?;
    let mixed = loaded.add_app(MIXED, OTHERS).await?;
    let mut lines = String::new();
    for n in 0..TROUBLED {
        writeln!(lines, r#"{{"client_id":"troubled-{n}"}}"#)?;
    }
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), lines)?;
    let path = file.path().to_string_lossy().into_owned();
    loaded.stack.pushctl(&["device", "import", MIXED, &path]).await;
    let mut rows = Vec::new();
    for (what, trouble) in TROUBLES {
        let broker = RogueBroker::start().await;
        let worker = loaded.stack.worker_at(&broker.url(), &[]).await;
        let mut alone = loaded.producer().connect().await?;
        let mut beside = mixed.connect().await?;
        others_sent(&mut alone).await?;
        broker.behave(trouble);
        broker.close_connections();
        let mut rounds = Rounds::default();
        for _ in 0..env.sizes.rounds {
            let figure = others_sent(&mut beside).await?;
            let ceiling = others_sent(&mut alone).await?;
            rounds.add(figure, ceiling);
        }
        // The broker never answers the rest.
        drop(worker);
        rows.push(Row {
            what: format!("broadcast beside a transport that is {what}"),
            target: Target::RatioAtMost(1.1),
            how: format!(
                "from the POST until {OTHERS} devices on `discard` are sent to, beside {TROUBLED} \
                 MQTT devices of the same app, one worker, {} rounds. Ceiling, in turn: an app \
                 that has the former alone",
                env.sizes.rounds
            ),
            ..rounds.row("ms", "ms")
        });
    }
    Ok(rows)
}

/// Sends a broadcast, and returns the milliseconds until all devices of the transport that works were sent
/// to.
async fn others_sent(pushes: &mut Connection) -> anyhow::Result<f64> {
    let started = Instant::now();
    let id = pushes.push(&broadcast()).await?;
    let wait = async {
        while pushes.ledger(&id).await?["sent"].as_u64() < Some(OTHERS as u64) {
            sleep(POLL_INTERVAL).await;
        }
        anyhow::Ok(())
    };
    timeout(broadcasts::TIMEOUT, wait).await??;
    Ok(started.elapsed().as_secs_f64() * 1000.0)
}
