//! Pushes a second in batch requests, compared with single pushes.

use std::time::Duration;

use anyhow::ensure;
use push_tests::service::Program;

use crate::{
    load::pushes::ordinary_push,
    measure::stats::Rounds,
    report::{Row, Target},
    setup::{Environment, environment::purge_jobs, population},
};

/// Connections of single pushes.
const SINGLE: usize = 256;
/// Connections of batch requests: few enough that ingest's batch queue has room for their pushes.
const BATCH: usize = 8;
/// Pushes in one request.
const LINES: usize = 500;
/// Load before the first round.
const WARM_UP: Duration = Duration::from_secs(1);

pub(crate) async fn run(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let service = env.empty_app().await?;
    let producer = service.producer();
    let amqp = env.amqp_url().await?;
    let push = ordinary_push(&population::client_id(1));
    let lines = format!("{push}\n").repeat(LINES);
    producer.wrk(SINGLE, WARM_UP, &push).await?;
    producer.wrk_lines(BATCH, WARM_UP, &lines).await?;
    let mut rounds = Rounds::default();
    for _ in 0..env.sizes.rounds {
        let load = env.sizes.load;
        let single = producer.wrk(SINGLE, load, &push).await?;
        purge_jobs(&amqp, &service.stack).await?;
        let before = accepted(service.stack.ingest()).await;
        let requests = producer.wrk_lines(BATCH, load, &lines).await?;
        let many = accepted(service.stack.ingest()).await - before;
        purge_jobs(&amqp, &service.stack).await?;
        let answered = requests * load.as_secs_f64() * LINES as f64;
        // wrk does not count the requests in flight at its end, which may be accepted.
        ensure!(many >= answered * 0.99, "of {answered} pushes {many} were accepted");
        rounds.add(requests * LINES as f64, single);
    }
    Ok(vec![Row {
        what: format!("pushes in requests of {LINES}, {BATCH} connections"),
        target: Target::RatioAtLeast(6.0),
        how: format!(
            "wrk, keep-alive, {} x {:?} each in turn; every answer after the confirm of a durable \
             quorum queue. Over single pushes on {SINGLE} connections to the same ingest",
            env.sizes.rounds, env.sizes.load
        ),
        ..rounds.row("pushes/s", "pushes/s")
    }])
}

/// Returns how many pushes in batch requests were accepted since ingest started.
async fn accepted(ingest: &Program) -> f64 {
    ingest.metric("push_ingest_answers_total{call=\"push_batch_line\",status=\"200\"}").await
}
