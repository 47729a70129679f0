//! The stop of a program: its steps, and the order in which all programs take them.

use std::pin::Pin;

use anyhow::{Context as _, bail};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The stages of a stop, in their order. Each one still needs those after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Answers the requests in work, whose pushes are published until the last answer. Begins as
    /// soon as the program is told to stop.
    Requests,
    /// Ends the work on queue messages: saves its checkpoints and publishes the rest.
    Deliveries,
    /// Closes the connections to brokers and providers.
    Transports,
    /// Closes the connections to the queue.
    Queue,
    /// Stops the embedded broker, which saves what waits for devices.
    Broker,
}

/// The steps of a stop.
#[derive(Default)]
pub(super) struct Steps(Vec<(Stage, Step)>);

enum Step {
    Part { name: &'static str, stop: CancellationToken, task: JoinHandle<anyhow::Result<()>> },
    Close(Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>),
}

impl Steps {
    /// Runs a part of the program in a task. `stop` is cancelled when its stage begins.
    pub(super) fn part(
        &mut self,
        stage: Stage,
        name: &'static str,
        stop: CancellationToken,
        work: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        self.0.push((stage, Step::Part { name, stop, task: tokio::spawn(work) }));
    }

    /// Adds what is to be closed in this stage.
    pub(super) fn close(
        &mut self,
        stage: Stage,
        closing: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        self.0.push((stage, Step::Close(Box::pin(closing))));
    }

    /// Takes all steps, one after the other, whatever fails. Returns the failures.
    pub(super) async fn stop(mut self) -> Vec<anyhow::Error> {
        self.0.sort_by_key(|(stage, _)| *stage);
        let mut failures = Vec::new();
        for (_, step) in self.0 {
            let ended = match step {
                Step::Part { name, stop, task } => {
                    stop.cancel();
                    task.await.with_context(|| format!("{name} failed")).flatten()
                }
                Step::Close(closing) => closing.await,
            };
            failures.extend(ended.err());
        }
        failures
    }
}

/// Runs a part of a program, whose end stops the whole: a process that went on without its HTTP
/// endpoint or its worker would look alive and do nothing.
///
/// # Errors
/// If the part fails, or ends before `shutdown`.
pub(super) async fn watched<E: Into<anyhow::Error>>(
    name: &'static str,
    work: impl Future<Output = Result<(), E>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    // Also if `work` panics.
    let _stops = shutdown.clone().drop_guard();
    let ended = work.await.map_err(Into::into).with_context(|| format!("{name} failed"));
    if ended.is_ok() && !shutdown.is_cancelled() {
        bail!("{name} stopped by itself");
    }
    ended
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use super::*;

    #[tokio::test]
    async fn a_part_that_ends_by_itself_stops_the_whole_and_says_so() {
        let run = async |work: Result<(), io::Error>| {
            let stop = CancellationToken::new();
            let ended = watched("the worker", async { work }, stop.clone()).await;
            (stop.is_cancelled(), format!("{:#}", ended.unwrap_err()))
        };
        let (stopped, error) = run(Ok(())).await;
        assert!(stopped && error == "the worker stopped by itself", "{error}");
        let (stopped, error) = run(Err(io::Error::other("no queue"))).await;
        assert!(stopped && error == "the worker failed: no queue", "{error}");
    }

    async fn faulty() -> io::Result<()> {
        panic!("a fault of the worker")
    }

    #[tokio::test]
    async fn a_part_that_panics_stops_the_whole_and_everything_else_is_closed() {
        let (shutdown, closed) = (CancellationToken::new(), CancellationToken::new());
        let mut steps = Steps::default();
        let work = watched("the worker", faulty(), shutdown.clone());
        steps.part(Stage::Deliveries, "the worker", CancellationToken::new(), work);
        let closing = closed.clone();
        steps.close(Stage::Queue, async move {
            closing.cancel();
            Ok(())
        });
        shutdown.cancelled().await;
        let failures = steps.stop().await;
        assert!(format!("{:#}", failures[0]).starts_with("the worker failed: "), "{failures:?}");
        assert!(closed.is_cancelled());
    }

    #[tokio::test]
    async fn a_part_that_was_told_to_stop_ends_well() {
        let stop = CancellationToken::new();
        let asked = stop.clone();
        let work = async move {
            asked.cancelled().await;
            Ok::<_, io::Error>(())
        };
        stop.cancel();
        watched("the worker", work, stop).await.unwrap();
    }

    #[tokio::test]
    async fn a_stop_ends_requests_first_and_the_broker_last_in_whatever_order_they_began() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut steps = Steps::default();
        for stage in [Stage::Broker, Stage::Queue, Stage::Transports] {
            let order = order.clone();
            steps.close(stage, async move {
                order.lock().unwrap().push(stage);
                Ok(())
            });
        }
        for stage in [Stage::Deliveries, Stage::Requests] {
            let (order, stop) = (order.clone(), CancellationToken::new());
            let told = stop.clone();
            steps.part(stage, "a part", stop, async move {
                told.cancelled().await;
                order.lock().unwrap().push(stage);
                Ok(())
            });
        }
        assert!(steps.stop().await.is_empty());
        let order = order.lock().unwrap();
        assert!(order.len() == 5 && order.is_sorted(), "{order:?}");
    }
}
