//! MQTT 5: topic `push/{AppID}/{ClientID}`, QoS 1, message expiry = remaining time to live.
//!
//! - `Sent` means that the broker took responsibility: a PUBACK with success.
//! - A delivery is split over several connections ([`MqttSettings::connections`]). Each has a
//!   bounded window of unacknowledged messages, which its deliveries share in turns.
//! - A connection that breaks, or whose broker stops answering, is re-established in the
//!   background. Messages that were written to it and not acknowledged are undecided, and the same
//!   delivery does not send them again. The others go over another connection.
//! - A message with time to live 0 goes over the connections that are up, or is not sent.
//!
//! A device is without an answer for a bounded time. T is [`MqttSettings::ack_timeout`], and a session
//! checks eight times in T:
//! - T after the last acknowledgement on a connection, the connection ends, and messages in flight on it
//!   are undecided. A broker that acknowledges anything keeps its connection, however slow it is.
//! - 3 T after a message that was sent later was acknowledged, the device alone is undecided: a
//!   broker acknowledges in order, so it has lost this message. With the T within which something
//!   must be acknowledged, a device that is never acknowledged delays its delivery by a little more
//!   than 4 T. Its packet identifier is not used again in that session. The session is renewed as
//!   soon as nothing is in flight on it; once half of its window is lost, it takes nothing new
//!   until then.
//! - A delivery ends [`MqttSettings::delivery_timeout`] after it began. In the second half of that time
//!   nothing more is handed over, and the remaining devices are tried later (busy). This bounds a
//!   delivery to a broker that is much too slow for its window.
//! - [`MqttSettings::offline_timeout`] after the last connection went down, the remaining devices of the
//!   delivery are tried later (transport away).
//!
//! The broker's settings limit the rate. With a small receive maximum, connections mostly wait for
//! acknowledgements (Mosquitto announces 20 unless `max_inflight_messages` is set). With Nagle's
//! algorithm on, the last acknowledgements of a lone delivery come 40 ms late (Mosquitto needs
//! `set_tcp_nodelay true`).
//!
//! - `batch`: a batch, cut into sub-batches; the rest of one moves to another connection if its own breaks
//! - `sub_batch`: the part of a batch that one connection sends
//! - `pool`, `connection`: the connections to the broker, re-established in the background
//! - `session`: one MQTT session after its handshake
//! - `args`: the flags about the broker
//! - `expiry`: a message's lifetime in the units of MQTT

mod args;
mod batch;
mod connection;
mod expiry;
mod pool;
mod session;
mod settings;
mod sub_batch;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use push_model::device::Target;
use push_mqtt::MqttUrl;

pub use self::{args::MqttBrokerArgs, settings::MqttSettings};
use self::{batch::BatchDelivery, pool::Pool};
use super::{
    contract::{Connections, Outgoing, Transport},
    outcome::Outcome,
    sending::{Proceed, Sending},
};

/// The MQTT transport. Its connections work in the background from the start.
pub struct MqttTransport {
    url: MqttUrl,
    settings: Arc<MqttSettings>,
    pool: Pool,
}

impl MqttTransport {
    /// Begins to connect in the background and returns immediately. An unavailable broker is tried again.
    ///
    /// Must be called within a Tokio runtime.
    pub fn start(url: MqttUrl, settings: MqttSettings) -> Self {
        let settings = Arc::new(settings);
        let pool = Pool::start(&url, &settings);
        Self { url, settings, pool }
    }
}

#[async_trait]
impl Transport for MqttTransport {
    async fn deliver(
        &self,
        message: &Outgoing,
        targets: &[Target],
        sending: &Sending,
    ) -> Vec<Outcome> {
        if message.lifetime.is_over(sending.now()) {
            return vec![Outcome::Expired; targets.len()];
        }
        if let Proceed::Stop(reason) = sending.may_send_more() {
            return vec![reason.outcome(); targets.len()];
        }
        BatchDelivery::new(&self.pool, &self.settings, message, sending).run(targets).await
    }

    async fn ready(&self) -> bool {
        *self.pool.up().borrow() != 0
    }

    fn server(&self) -> Option<String> {
        let url = self.url.to_string();
        let address = url.split_once("://").map_or(&*url, |(_, address)| address);
        Some(format!("the MQTT broker at {address}"))
    }

    fn trouble(&self) -> Option<String> {
        self.pool.trouble()
    }

    fn longest_silence(&self) -> Duration {
        // 4 T, and the interval at which a session checks for what waits too long.
        self.settings.ack_timeout * 4 + self.settings.ack_timeout / 8
    }

    fn connections(&self) -> Option<Connections> {
        Some(self.pool.connections())
    }

    async fn close(&self) {
        self.pool.close().await;
    }
}

impl fmt::Debug for MqttTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MqttTransport").field("broker", &self.url).finish_non_exhaustive()
    }
}
