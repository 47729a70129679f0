//! Producers: one for each `ingest`, posting all the time, whatever fault is in force.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{sync::Semaphore, time::sleep};

use crate::{load::client::Client, run::Run};

/// Posts of one producer that may wait for their answers at the same time. A producer whose `ingest` is
/// frozen falls behind its pace and catches up later.
const AT_ONCE: usize = 32;
/// Pushes a second after the last fault.
const AT_PEACE: f64 = 400.0;
/// The pause of a producer that is ahead of its pace.
const AHEAD: Duration = Duration::from_millis(10);

/// Posts every push that goes through this `ingest` first, spread over the `length` of the faults.
pub(crate) async fn produce(
    run: Arc<Run>,
    ingest: usize,
    length: Duration,
    peace: Arc<AtomicBool>,
) {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut rate = f64::from(run.pushes.count) / length.as_secs_f64().max(1.0);
    let mut from = (0, Instant::now());
    for number in 0..run.pushes.count {
        let push = run.pushes.get(number, &run.people);
        if push.ingest != ingest {
            continue;
        }
        while f64::from(number - from.0) > rate * from.1.elapsed().as_secs_f64() {
            sleep(AHEAD).await;
            if rate < AT_PEACE && peace.load(Ordering::Relaxed) {
                (rate, from) = (AT_PEACE, (number, Instant::now()));
            }
        }
        let place = places.clone().acquire_owned().await.expect("it is never closed");
        let run = run.clone();
        tokio::spawn(async move {
            post(&run, &run.client, number).await;
            drop(place);
        });
    }
    let all = u32::try_from(AT_ONCE).unwrap_or(u32::MAX);
    let _ = places.acquire_many(all).await.expect("it is never closed");
}

/// Posts one push, and the same one through the other `ingest` too if it has a key.
pub(crate) async fn post(run: &Run, client: &Client, number: u32) {
    let push = run.pushes.get(number, &run.people);
    run.book.posting(number);
    let other = async {
        match push.key {
            Some(_) => Some(client.push(1 - push.ingest, &push, &run.people).await),
            None => None,
        }
    };
    let (one, other) = tokio::join!(client.push(push.ingest, &push, &run.people), other);
    run.book.answered(number, one);
    if let Some(other) = other {
        run.book.answered(number, other);
    }
}
