//! Looks at the service once a second for all viewers of the page "Now", and not at all while there are none.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use push_boot::engines::Stores;
use push_model::{ids::MessageId, time::UnixMillis};
use push_operator::{
    components,
    message::rate::{RateEstimator, Sample},
    status::{self, StatusView},
};
use push_queue::Queue;
use tokio::{
    sync::{Mutex, watch},
    time::{Instant, sleep_until, timeout},
};

use crate::pages::now;

/// The time between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// The longest time of a look.
const PATIENCE: Duration = Duration::from_secs(5);
/// The age up to which a look serves another page that is opened.
const FRESH: Duration = Duration::from_secs(2);

/// A look at the service, and the part of the page that shows it.
#[derive(Debug)]
pub(crate) struct Sampled {
    /// The changing part of the page.
    pub(crate) markup: String,
    /// The same as an event, written once for all viewers.
    pub(crate) event: Bytes,
    taken: Instant,
}

impl Sampled {
    fn new(markup: String, taken: Instant) -> Arc<Self> {
        Arc::new(Self { event: event(&markup), markup, taken })
    }
}

/// Writes an event (HTML, section 9.2 "Server-sent events").
fn event(markup: &str) -> Bytes {
    let mut event = String::with_capacity(markup.len() + 64);
    for line in markup.split(['\n', '\r']) {
        event.extend(["data: ", line, "\n"]);
    }
    event.push('\n');
    event.into()
}

/// The rates of the broadcasts in work.
#[derive(Debug)]
pub(crate) struct Rates {
    since: Instant,
    of: HashMap<MessageId, RateEstimator>,
}

impl Rates {
    fn new() -> Self {
        Self { since: Instant::now(), of: HashMap::new() }
    }

    /// Takes what was seen now; what is over is forgotten.
    fn add(&mut self, status: &StatusView) {
        let broadcasts = status.broadcasts.as_deref().unwrap_or_default();
        self.of.retain(|id, _| broadcasts.iter().any(|of| of.message_id == *id));
        for broadcast in broadcasts {
            let devices =
                broadcast.outcomes.as_ref().map_or(0, push_model::ledger::Outcomes::total);
            let sample = Sample { at: self.since.elapsed(), devices, share: broadcast.progress };
            self.of.entry(broadcast.message_id).or_default().add(sample);
        }
    }

    /// The rate of a broadcast.
    pub(crate) fn of(&self, id: &MessageId) -> Option<&RateEstimator> {
        self.of.get(id)
    }
}

/// Samples for all viewers.
#[derive(Debug)]
pub(crate) struct Sampler {
    stores: Stores,
    queue: Arc<dyn Queue>,
    rates: Mutex<Rates>,
    latest: watch::Sender<Arc<Sampled>>,
}

impl Sampler {
    pub(crate) fn new(stores: Stores, queue: Arc<dyn Queue>) -> Self {
        // Older than any look that may be used.
        let taken = Instant::now().checked_sub(FRESH).unwrap_or_else(Instant::now);
        let latest = watch::Sender::new(Sampled::new(String::new(), taken));
        Self { stores, queue, rates: Mutex::new(Rates::new()), latest }
    }

    /// Returns a look that is at most [`FRESH`] old. Many that ask at once share one.
    pub(crate) async fn fresh(&self) -> Arc<Sampled> {
        let mut rates = self.rates.lock().await;
        let latest = Arc::clone(&self.latest.borrow());
        if latest.taken.elapsed() < FRESH {
            return latest;
        }
        self.look(&mut rates).await
    }

    /// Follows the looks from now on.
    pub(crate) fn follow(&self) -> watch::Receiver<Arc<Sampled>> {
        self.latest.subscribe()
    }

    /// Looks as long as someone follows. Runs until it is dropped.
    pub(crate) async fn keep_looking(&self) {
        loop {
            let next = Instant::now() + EVERY;
            if self.latest.receiver_count() > 0 {
                let mut rates = self.rates.lock().await;
                self.look(&mut rates).await;
            }
            sleep_until(next).await;
        }
    }

    async fn look(&self, rates: &mut Rates) -> Arc<Sampled> {
        let look = async {
            tokio::join!(
                status::read(&*self.queue, &self.stores, None),
                components::list(&*self.stores.index),
            )
        };
        let markup = match timeout(PATIENCE, look).await {
            Ok((status, components)) => {
                rates.add(&status);
                let components = components.unwrap_or_default();
                now::changing(&status, &components, rates, UnixMillis::now())
            }
            Err(_) => now::silent(),
        };
        let sampled = Sampled::new(markup.into_string(), Instant::now());
        self.latest.send_replace(Arc::clone(&sampled));
        sampled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_every_line_of_the_markup() {
        assert_eq!(event("<p>a\nb\r</p>"), "data: <p>a\ndata: b\ndata: </p>\n\n");
    }
}
