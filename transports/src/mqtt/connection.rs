//! One connection to the broker, re-established whenever it is lost.
//!
//! While it is down, it gives sub-batches back immediately: another connection may be up, and only the
//! delivery knows how long it can wait.

use std::{
    num::NonZeroU16,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use push_model::causes::with_causes;
use push_mqtt::{
    MqttUrl,
    handshake::{self, ConnectError, SessionParams, Stream},
};
use rmqtt_codec::v5::Connect;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    session::{self, SessionEnd, SessionLimits},
    settings::MqttSettings,
    sub_batch::SubBatch,
};

/// The most sub-batches that wait for a session to take them.
pub(super) const QUEUE: usize = 64;

/// The connections that are up, one bit each.
pub(super) type UpConnections = watch::Sender<u64>;

/// The reason for which the last connection failed. The log tells it when none is up; a line for each
/// connection would repeat it.
#[derive(Debug, Clone, Default)]
pub(super) struct LastTrouble(Arc<Mutex<Option<String>>>);

impl LastTrouble {
    pub(super) fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, why: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }
}

pub(super) struct Connection {
    pub(super) number: usize,
    pub(super) url: MqttUrl,
    pub(super) settings: Arc<MqttSettings>,
    pub(super) up: UpConnections,
    pub(super) trouble: LastTrouble,
    pub(super) stop: CancellationToken,
}

impl Connection {
    /// Keeps a session open until stopped.
    pub(super) async fn run(self, mut sub_batches: mpsc::Receiver<SubBatch>) {
        let mut failures = 0u32;
        while !self.stop.is_cancelled() {
            match self.connect(&mut sub_batches).await {
                Some(Ok((stream, terms))) => {
                    let since = Instant::now();
                    let lost = self.serve(stream, terms, &mut sub_batches).await;
                    if matches!(lost, SessionEnd::Stopped) {
                        break;
                    }
                    let cause: &dyn std::error::Error = &lost;
                    debug!(broker = %self.url, connection = self.number, cause, "connection to the broker lost");
                    self.trouble.set(with_causes(cause));
                    // Pauses grow for a broker that ends every session soon after its start.
                    if since.elapsed() > self.settings.reconnect_longest {
                        failures = 0;
                    }
                }
                Some(Err(error)) => {
                    let error: &dyn std::error::Error = &error;
                    let (broker, connection) = (&self.url, self.number);
                    debug!(%broker, connection, error, "cannot connect to the broker");
                    self.trouble.set(with_causes(error));
                }
                None => break,
            }
            self.pause(failures, &mut sub_batches).await;
            failures = failures.saturating_add(1);
        }
        sub_batches.close();
        while let Some(sub_batch) = sub_batches.recv().await {
            sub_batch.give_back();
        }
    }

    async fn connect(
        &self,
        sub_batches: &mut mpsc::Receiver<SubBatch>,
    ) -> Option<Result<(Box<dyn Stream>, SessionParams), ConnectError>> {
        // Each connection needs a client id of its own, because the broker ends an older session of the
        // same id.
        let client_id = format!("push-worker-{}", uuid::Uuid::now_v7().simple());
        let wanted = Connect { clean_start: true, ..Connect::default() }.client_id(client_id);
        let connected = handshake::connect(&self.url, self.settings.connect_timeout, wanted);
        self.giving_back(sub_batches, connected).await
    }

    async fn serve(
        &self,
        stream: Box<dyn Stream>,
        terms: SessionParams,
        sub_batches: &mut mpsc::Receiver<SubBatch>,
    ) -> SessionEnd {
        let wanted = NonZeroU16::new(self.settings.window).unwrap_or(NonZeroU16::MIN);
        let window = wanted.min(terms.receive_max);
        debug!(broker = %self.url, connection = self.number, window, "connected to the broker");
        let _up = UpGuard::set(&self.up, self.number);
        let limits = SessionLimits { window, ack_timeout: self.settings.ack_timeout };
        session::run(stream, terms, limits, sub_batches, &self.stop).await
    }

    async fn pause(&self, failures: u32, sub_batches: &mut mpsc::Receiver<SubBatch>) {
        let doubled = self.settings.reconnect_first.saturating_mul(2u32.saturating_pow(failures));
        let longest = doubled.min(self.settings.reconnect_longest);
        let pause: Duration = longest.mul_f64(0.5 + 0.5 * rand::random::<f64>());
        self.giving_back(sub_batches, tokio::time::sleep(pause)).await;
    }

    /// Waits for `what` and gives sub-batches back meanwhile. Returns `None` when stopped.
    async fn giving_back<T>(
        &self,
        sub_batches: &mut mpsc::Receiver<SubBatch>,
        what: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::pin!(what);
        loop {
            tokio::select! {
                done = &mut what => return Some(done),
                sub_batch = sub_batches.recv() => sub_batch?.give_back(),
                () = self.stop.cancelled() => return None,
            }
        }
    }
}

/// Marks a connection as up until it is dropped.
struct UpGuard<'a> {
    up: &'a UpConnections,
    bit: u64,
}

impl<'a> UpGuard<'a> {
    fn set(up: &'a UpConnections, number: usize) -> Self {
        let bit = 1 << number;
        up.send_modify(|up| *up |= bit);
        Self { up, bit }
    }
}

impl Drop for UpGuard<'_> {
    fn drop(&mut self) {
        self.up.send_modify(|up| *up &= !self.bit);
    }
}
