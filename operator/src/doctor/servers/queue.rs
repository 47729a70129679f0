//! The state of the queue: if it takes messages, and how many wait in its lanes.

use std::sync::Arc;

use anyhow::Context as _;
use push_boot::engines::{self, EngineSettings, QueueUrl};
use push_queue::{Lane, Queue};
use push_store::Finding;

use super::{
    engine::{Engine, look_for},
    rabbitmq,
};

/// More dead letters than this are reported as "or more", because each one is read to be counted.
const DEAD_COUNTED: usize = 1000;

/// Opens the queue, unless that would make it.
///
/// # Errors
/// If it cannot be used.
pub(in crate::doctor) async fn open(
    engines: &EngineSettings,
    program: &str,
) -> anyhow::Result<Arc<dyn Queue>> {
    if let QueueUrl::Sqlite(file) = &engines.queue {
        look_for(file)?;
    }
    engines::open_queue(engines, program)
        .await
        .with_context(|| format!("cannot use the queue at {}", engines.queue))
}

pub(in crate::doctor) async fn findings(queue: &dyn Queue, engine: &Engine) -> Vec<Finding> {
    let mut findings = Vec::new();
    match queue.describe().await {
        Ok(description) => {
            let version = rabbitmq::version(&description);
            findings.push(Finding::ok(engine.name, description));
            findings.extend(version);
        }
        Err(error) => findings.push(engine.queue_failed(engine.name, &error)),
    }
    findings.push(publishing(queue, engine).await);
    for lane in Lane::ALL {
        findings.push(depth(queue, engine, lane).await);
    }
    findings.push(dead_letters(queue, engine).await);
    findings
}

/// Publishes a probe: RabbitMQ may have a memory or disk alarm, a file no room.
async fn publishing(queue: &dyn Queue, engine: &Engine) -> Finding {
    const SUBJECT: &str = "publishing";
    match queue.ping().await {
        Ok(()) => Finding::ok(SUBJECT, "the queue takes messages"),
        Err(error) => engine.queue_failed(SUBJECT, &error),
    }
}

/// Counts the envelopes that wait in a lane.
async fn depth(queue: &dyn Queue, engine: &Engine, lane: Lane) -> Finding {
    let subject = format!("lane {}", lane.name());
    match queue.depth(lane).await {
        Ok(1) => Finding::ok(subject, "1 envelope waits"),
        Ok(count) => Finding::ok(subject, format!("{count} envelopes wait")),
        Err(error) => engine.queue_failed(subject, &error),
    }
}

async fn dead_letters(queue: &dyn Queue, engine: &Engine) -> Finding {
    const SUBJECT: &str = "dead letters";
    match queue.dead(DEAD_COUNTED).await {
        Ok(letters) if letters.is_empty() => Finding::ok(SUBJECT, "none"),
        Ok(letters) => {
            let more = if letters.len() == DEAD_COUNTED { " or more" } else { "" };
            let remedy = "see `pushctl dead list`, then `pushctl dead replay` or `drop`";
            Finding::warning(SUBJECT, format!("{}{more}", letters.len()), remedy)
        }
        Err(error) => engine.queue_failed(SUBJECT, &error),
    }
}
