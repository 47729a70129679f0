//! The latency of pushes one after the other on one connection, compared with confirmed publishes
//! one after the other.

use std::{num::NonZeroUsize, time::Duration};

use push_boot::runtime;
use tokio::time::Instant;

use crate::{
    ceiling::raw_publisher::{RawPublisher, job_size},
    load::{
        Producer,
        producer::{Connection, message_id},
        pushes::ordinary_push,
    },
    measure::stats::{Rounds, quantile},
    report::{Row, Target},
    setup::{Environment, environment::purge_jobs, population},
};

pub(crate) async fn run(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let service = env.empty_app().await?;
    let (producer, amqp) = (service.producer(), env.amqp_url().await?);
    let (rounds, count) = (env.sizes.rounds * 2, env.sizes.sequential);
    // On one thread: a runtime with several may wake one thread for an answer and run the task on
    // another, which takes longer.
    let rows = tokio::task::spawn_blocking(move || {
        runtime::start(NonZeroUsize::MIN)?.block_on(in_turn(&producer, &amqp, rounds, count))
    });
    let rows = rows.await??;
    purge_jobs(&env.amqp_url().await?, &service.stack).await?;
    Ok(rows)
}

async fn in_turn(
    producer: &Producer,
    amqp: &str,
    rounds: usize,
    count: usize,
) -> anyhow::Result<Vec<Row>> {
    let mut pushes = producer.connect().await?;
    let raw = RawPublisher::connect(amqp).await?;
    let payload = vec![b'x'; job_size()];
    // Warms up the app's record in ingest's cache, both queues, and the broker's log.
    round_of_pushes(&mut pushes, 20).await?;
    raw.round(&payload, 20).await?;
    let (mut middles, mut tails) = (Rounds::default(), Rounds::default());
    for _ in 0..rounds {
        let mut ours = round_of_pushes(&mut pushes, count).await?;
        let mut theirs = raw.round(&payload, count).await?;
        middles.add(quantile(&mut ours, 0.5), quantile(&mut theirs, 0.5));
        tails.add(quantile(&mut ours, 0.99), quantile(&mut theirs, 0.99));
    }
    raw.close().await?;
    let row = |what: &str, measured: &Rounds, target| Row {
        what: format!("one connection, {what}"),
        target,
        how: format!(
            "{rounds} x {count} pushes one after the other. Ceiling, in turn: a persistent, \
                 mandatory publish of {} bytes to a quorum queue and its confirm, by lapin; both \
                 from one thread",
            payload.len()
        ),
        ..measured.row("ms", "ms")
    };
    Ok(vec![row("p50", &middles, Target::RatioAtMost(1.25)), row("p99", &tails, Target::None)])
}

async fn round_of_pushes(pushes: &mut Connection, count: usize) -> anyhow::Result<Vec<Duration>> {
    // As for the raw publish, encoding the request and parsing the answer are not timed.
    let request = pushes.push_request(&ordinary_push(&population::client_id(1)));
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let started = Instant::now();
        let answer = pushes.exchange(&request).await?;
        times.push(started.elapsed());
        message_id(&answer)?;
    }
    Ok(times)
}
