//! Pushes a second in requests of many, over those of single ones.

use std::time::Duration;

use anyhow::ensure;
use push_tests::service::Program;

use crate::{
    crowd, ingest,
    load::{Rounds, ordinary_push},
    report::{Figure, Row, Target},
    world::World,
};

/// Connections of single pushes.
const SINGLE: usize = 256;
/// Connections of requests with many; their pushes together are fewer than may wait.
const MANY: usize = 8;
/// Pushes in one request.
const LINES: usize = 500;
/// Load before the first round.
const WARM_UP: Duration = Duration::from_secs(1);

pub(crate) async fn run(world: &World) -> anyhow::Result<Vec<Row>> {
    let service = world.empty().await?;
    let producer = service.producer();
    let amqp = world.amqp().await?;
    let push = ordinary_push(&crowd::client_id(1));
    let lines = format!("{push}\n").repeat(LINES);
    producer.wrk(SINGLE, WARM_UP, &push).await?;
    producer.wrk_lines(MANY, WARM_UP, &lines).await?;
    let mut rounds = Rounds::default();
    for _ in 0..world.sizes.rounds {
        let load = world.sizes.load;
        let single = producer.wrk(SINGLE, load, &push).await?;
        ingest::forget_jobs(&amqp, &service.stack).await?;
        let before = accepted(service.stack.ingest()).await;
        let requests = producer.wrk_lines(MANY, load, &lines).await?;
        let many = accepted(service.stack.ingest()).await - before;
        ingest::forget_jobs(&amqp, &service.stack).await?;
        let answered = requests * load.as_secs_f64() * LINES as f64;
        // What was on its way at the end may be accepted and not counted by wrk.
        ensure!(many >= answered * 0.99, "of {answered} pushes {many} were accepted");
        rounds.add(requests * LINES as f64, single);
    }
    let (figure, ceiling, ratio) = rounds.medians();
    Ok(vec![Row {
        what: format!("pushes in requests of {LINES}, {MANY} connections"),
        figure: Figure::new(figure, "pushes/s"),
        ceiling: Some(Figure::new(ceiling, "pushes/s")),
        ratio: Some(ratio),
        target: Target::RatioAtLeast(3.0),
        how: format!(
            "wrk, keep-alive, {} x {:?} each in turn; every answer after the confirm of a durable \
             quorum queue. Over single pushes on {SINGLE} connections to the same ingest",
            world.sizes.rounds, world.sizes.load
        ),
    }])
}

/// How many pushes of requests with many were accepted.
async fn accepted(ingest: &Program) -> f64 {
    ingest.metric("push_ingest_answers_total{call=\"push_batch_line\",status=\"200\"}").await
}
