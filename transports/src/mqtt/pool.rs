//! The connections to the broker: their state, and the choice of those that take a delivery.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use push_mqtt::MqttUrl;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    connection::{self, Connection, LastTrouble},
    settings::MqttSettings,
    sub_batch::SubBatch,
};
use crate::contract::Connections;

/// Deliveries to at most this many devices use the express connection, which broadcasts do not use.
const SMALL_DELIVERY: usize = 16;

/// The fewest devices of a sub-batch: splitting a delivery further costs more than it gains.
const MIN_SUB_BATCH: usize = 64;

/// Connections that work in the background until the pool is closed or dropped.
pub(super) struct Pool {
    /// The connections for broadcasts, then the express connection for small deliveries.
    connections: Vec<mpsc::Sender<SubBatch>>,
    up: watch::Receiver<u64>,
    trouble: LastTrouble,
    /// The time of the first delivery that found no connection up.
    down_since: Mutex<Option<Instant>>,
    /// Rotates which connection gets the first sub-batch of a delivery.
    next: AtomicUsize,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Pool {
    /// Begins to connect. Must be called within a Tokio runtime.
    pub(super) fn start(url: &MqttUrl, settings: &Arc<MqttSettings>) -> Self {
        let (up, seen) = watch::channel(0);
        let trouble = LastTrouble::default();
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let bulk = settings.connections.clamp(1, MqttSettings::MAX_CONNECTIONS);
        let connections = (0..=bulk)
            .map(|number| {
                let (sub_batches, taken) = mpsc::channel(connection::QUEUE);
                let connection = Connection {
                    number,
                    url: url.clone(),
                    settings: settings.clone(),
                    up: up.clone(),
                    trouble: trouble.clone(),
                    stop: stop.clone(),
                };
                tasks.spawn(connection.run(taken));
                sub_batches
            })
            .collect();
        tasks.close();
        let down_since = Mutex::new(None);
        Self { connections, up: seen, trouble, down_since, next: AtomicUsize::new(0), stop, tasks }
    }

    /// Returns the time of the first delivery that found no connection up.
    pub(super) fn down_since(&self) -> Option<Instant> {
        let mut down = self.down_since.lock().unwrap_or_else(PoisonError::into_inner);
        if *self.up.borrow() != 0 {
            *down = None;
        } else if down.is_none() {
            *down = Some(Instant::now());
        }
        *down
    }

    /// Returns why the last connection that failed did so.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.get()
    }

    /// Returns the connections that are up, one bit each.
    pub(super) fn up(&self) -> watch::Receiver<u64> {
        self.up.clone()
    }

    pub(super) fn connections(&self) -> Connections {
        let open = usize::try_from(self.up.borrow().count_ones()).unwrap_or_default();
        Connections { open, wanted: self.connections.len() }
    }

    /// Chooses the connections for a delivery to this many devices, as soon as any is up. Returns none if
    /// none is up by `until` or the pool is closed. A connection that goes down after it was chosen gives
    /// its sub-batch back.
    pub(super) async fn choose(&self, devices: usize, until: Instant) -> Vec<usize> {
        let mut seen = self.up.clone();
        let any = async { seen.wait_for(|up| *up != 0).await.map(|up| *up) };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Vec::new(),
            up = any => up.map_or_else(|_| Vec::new(), |up| self.split(devices, up)),
            () = tokio::time::sleep_until(until) => Vec::new(),
        }
    }

    fn split(&self, devices: usize, up: u64) -> Vec<usize> {
        let is_up = |number: usize| up & (1 << number) != 0;
        let express = self.connections.len() - 1;
        if devices <= SMALL_DELIVERY && is_up(express) {
            return vec![express];
        }
        let mut chosen: Vec<usize> = (0..express).filter(|&number| is_up(number)).collect();
        if chosen.is_empty() {
            return vec![express];
        }
        let first = self.next.fetch_add(1, Ordering::Relaxed) % chosen.len();
        chosen.rotate_left(first);
        chosen.truncate(devices.div_ceil(MIN_SUB_BATCH).max(1));
        chosen
    }

    /// Hands a sub-batch to a connection. Returns false if it is closed or has no room by `until`.
    pub(super) async fn send(
        &self,
        connection: usize,
        sub_batch: SubBatch,
        until: Instant,
    ) -> bool {
        let Some(sub_batches) = self.connections.get(connection) else { return false };
        matches!(timeout_at(until, sub_batches.send(sub_batch)).await, Ok(Ok(())))
    }

    /// Ends all sessions and waits until they have ended.
    pub(super) async fn close(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
