//! The time of an answer of `/readyz` while pushes come over many connections, beside that while
//! nothing else is asked. An orchestrator takes a program out of service when its probe has no
//! answer in time, so a busy `ingest` must answer as an idle one does.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use crate::{
    load::pushes::ordinary_push,
    measure::stats::{Rounds, quantile},
    report::{Figure, Row, Target},
    setup::{Environment, environment::purge_jobs, population},
};

/// Connections that push.
const CONNECTIONS: usize = 256;
/// Load before the first round.
const WARM_UP: Duration = Duration::from_secs(1);
/// Pause between two questions.
const PAUSE: Duration = Duration::from_millis(10);
/// The deadline of one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// What the design requires, in milliseconds.
const TARGET: f64 = 100.0;

pub(crate) async fn run(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let service = env.empty_app().await?;
    let (producer, amqp) = (service.producer(), env.amqp_url().await?);
    let operations = service.stack.ingest().ops_address();
    let push = ordinary_push(&population::client_id(1));
    producer.wrk(CONNECTIONS, WARM_UP, &push).await?;
    let (mut rounds, mut asked) = (Rounds::default(), 0);
    for _ in 0..env.sizes.rounds {
        let mut idle = ask_during(&operations, sleep(env.sizes.load)).await?.0;
        let load = producer.wrk(CONNECTIONS, env.sizes.load, &push);
        let (mut loaded, accepted) = ask_during(&operations, load).await?;
        ensure!(accepted? > 0.0, "no push was accepted meanwhile");
        purge_jobs(&amqp, &service.stack).await?;
        asked += loaded.len();
        rounds.add(quantile(&mut loaded, 0.99), quantile(&mut idle, 0.99));
    }
    let (figure, idle, ratio) = rounds.medians();
    Ok(vec![Row {
        what: format!("/readyz during pushes over {CONNECTIONS} connections, p99"),
        figure: Figure::new(figure, "ms"),
        ceiling: Some(Figure::new(idle, "ms")),
        ratio: Some(ratio),
        target: Target::AtMost(TARGET),
        how: format!(
            "asked {asked} times in {} x {:?}, {PAUSE:?} apart, each over a connection of its own, \
             from its connect to the end of the answer. Beside it, in turn: while nothing pushes",
            env.sizes.rounds, env.sizes.load
        ),
    }])
}

/// Asks until the load ends. Gives the times of the answers, and what the load gives.
async fn ask_during<T>(
    operations: &str,
    load: impl Future<Output = T>,
) -> anyhow::Result<(Vec<Duration>, T)> {
    let is_over = AtomicBool::new(false);
    let asking = async {
        let mut times = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            times.push(ask(operations).await?);
            sleep(PAUSE).await;
        }
        anyhow::Ok(times)
    };
    let loading = async {
        let result = load.await;
        is_over.store(true, Ordering::Relaxed);
        anyhow::Ok(result)
    };
    tokio::try_join!(asking, loading)
}

/// How long one answer takes. The listener serves one request a connection.
async fn ask(operations: &str) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let exchange = async {
        let mut stream = TcpStream::connect(operations).await?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: readiness\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer = timeout(ANSWER_TIMEOUT, exchange).await.context("no answer of /readyz")??;
    ensure!(answer.starts_with("HTTP/1.1 200 "), "/readyz was answered {answer}");
    Ok(started.elapsed())
}
