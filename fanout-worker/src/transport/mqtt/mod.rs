//! MQTT 5: topic `push/{AppID}/{ClientID}`, QoS 1, message expiry = the time that is left.
//!
//! - `Sent` means that the broker took responsibility: a PUBACK with success.
//! - A delivery is split over several connections ([`MqttSettings::connections`]); each has a
//!   bounded window of unacknowledged messages and takes turns among the deliveries it carries.
//! - A connection that breaks, or whose broker stops answering, is re-established in the
//!   background. What it had not acknowledged is undecided: it is sent again over what is up, so
//!   a device may get a message twice, never not at all. What it had acknowledged is not
//!   repeated.
//! - Only when no connection comes back for [`MqttSettings::patience`] is a delivery given back
//!   as unavailable.
//!
//! What the broker's settings do to the rate: a small receive maximum makes every connection
//! stand still most of the time (Mosquitto announces 20 unless `max_inflight_messages` is set),
//! and one that does not disable Nagle's algorithm holds the last acknowledgements of a lone
//! delivery back for 40 ms (Mosquitto needs `set_tcp_nodelay true`).

mod connection;
pub mod handshake;
mod part;
mod session;
mod settings;
#[cfg(test)]
mod tests;
mod url;
mod window;

use std::{
    fmt,
    sync::atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use push_shared::{device::Target, time::UnixMillis};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    connection::Connection,
    part::{Lifetime, Part, topic},
};
pub use self::{
    settings::MqttSettings,
    url::{BadMqttUrl, MqttUrl},
};
use super::{Outcome, Outgoing, Transport, TransportError};

/// Deliveries of at most this many devices take the connection that broadcasts leave free.
const SMALL: usize = 16;

/// Devices below which splitting a delivery further costs more than it brings.
const MIN_PART: usize = 64;

/// The MQTT transport. Its connections work in the background from the start.
pub struct MqttTransport {
    url: MqttUrl,
    settings: MqttSettings,
    /// Those for broadcasts, then the one for small deliveries.
    connections: Vec<mpsc::Sender<Part>>,
    up: watch::Receiver<u64>,
    /// Which connection gets the first part of the next delivery.
    next: AtomicUsize,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// Why a delivery is not decided.
#[derive(Debug, thiserror::Error)]
#[error("{broker} {what}")]
struct Away {
    broker: MqttUrl,
    what: &'static str,
}

impl MqttTransport {
    /// Begins to connect, and returns at once: a broker that is away is waited for.
    ///
    /// Must be called within a Tokio runtime.
    pub fn start(url: MqttUrl, settings: MqttSettings) -> Self {
        let (up, seen) = watch::channel(0);
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let bulk = settings.connections.clamp(1, MqttSettings::MAX_CONNECTIONS);
        let connections = (0..=bulk)
            .map(|number| {
                let (parts, taken) = mpsc::channel(connection::QUEUE);
                let connection = Connection {
                    number,
                    url: url.clone(),
                    settings: settings.clone(),
                    up: up.clone(),
                    stop: stop.clone(),
                };
                tasks.spawn(connection.run(taken));
                parts
            })
            .collect();
        tasks.close();
        Self { url, settings, connections, up: seen, next: AtomicUsize::new(0), stop, tasks }
    }

    fn away(&self, what: &'static str) -> TransportError {
        TransportError::Unavailable(Box::new(Away { broker: self.url.clone(), what }))
    }

    /// The connections that this many devices are to be split over, once any is up. It may be
    /// one that went down just now; then its part comes back undecided.
    async fn choose(&self, devices: usize, until: Instant) -> Result<Vec<usize>, TransportError> {
        let mut seen = self.up.clone();
        let any = async { seen.wait_for(|up| *up != 0).await.map(|up| *up) };
        let up = tokio::select! {
            biased;
            up = any => up.map_err(|_| self.away("is not used any more"))?,
            () = tokio::time::sleep_until(until) => return Err(self.away("has no session with us")),
            () = self.stop.cancelled() => return Err(self.away("is not used any more")),
        };
        let is_up = |number: usize| up & (1 << number) != 0;
        let express = self.connections.len() - 1;
        if devices <= SMALL && is_up(express) {
            return Ok(vec![express]);
        }
        let mut chosen: Vec<usize> = (0..express).filter(|&number| is_up(number)).collect();
        if chosen.is_empty() {
            return Ok(vec![express]);
        }
        let first = self.next.fetch_add(1, Ordering::Relaxed) % chosen.len();
        chosen.rotate_left(first);
        chosen.truncate(devices.div_ceil(MIN_PART).max(1));
        Ok(chosen)
    }

    /// One try: sends to the targets at these places over what is up, and enters the outcomes.
    async fn attempt(
        &self,
        message: &Outgoing,
        targets: &[Target],
        lifetime: Lifetime,
        places: &[usize],
        until: Instant,
        outcomes: &mut [Option<Outcome>],
    ) -> Result<(), TransportError> {
        let chosen = self.choose(places.len(), until).await?;
        let size = places.len().div_ceil(chosen.len());
        let mut answers = Vec::with_capacity(chosen.len());
        for (part, number) in places.chunks(size).zip(chosen) {
            let (reply, answer) = oneshot::channel();
            let topics = part.iter().map(|&i| topic(&message.app_id, &targets[i])).collect();
            let payload = message.payload.clone();
            // A connection task ends only when the transport is closed; then nothing is decided.
            let _ = self.connections[number].send(Part { topics, payload, lifetime, reply }).await;
            answers.push((part, answer));
        }
        for (part, answer) in answers {
            let Ok(answer) = answer.await else { continue };
            for (&place, outcome) in part.iter().zip(answer) {
                outcomes[place] = outcome;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Transport for MqttTransport {
    async fn deliver(
        &self,
        message: &Outgoing,
        targets: &[Target],
        now: UnixMillis,
    ) -> Result<Vec<Outcome>, TransportError> {
        let start = Instant::now();
        let lifetime = Lifetime::of(message.expires_at, now, start);
        let until = match lifetime {
            Lifetime::NowOrNever => start,
            Lifetime::Until(_) | Lifetime::Unbounded => start + self.settings.patience,
        };
        let mut outcomes = vec![None; targets.len()];
        let mut open: Vec<usize> = (0..targets.len()).collect();
        while !open.is_empty() {
            self.attempt(message, targets, lifetime, &open, until, &mut outcomes).await?;
            open.retain(|&place| outcomes[place].is_none());
            if !open.is_empty() && Instant::now() >= until {
                return Err(self.away("did not acknowledge"));
            }
        }
        Ok(outcomes.into_iter().flatten().collect())
    }

    async fn ready(&self) -> bool {
        *self.up.borrow() != 0
    }

    async fn close(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for MqttTransport {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl fmt::Debug for MqttTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MqttTransport").field("broker", &self.url).finish_non_exhaustive()
    }
}
