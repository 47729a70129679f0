//! MQTT 5: topic `push/{AppID}/{ClientID}`, QoS 1, message expiry = the time that is left.
//!
//! - `Sent` means that the broker took responsibility: a PUBACK with success.
//! - A delivery is split over several connections ([`MqttSettings::connections`]). Each has a
//!   bounded window of unacknowledged messages, which its deliveries share in turns.
//! - A connection that breaks, or whose broker stops answering, is re-established in the
//!   background. What was written to it and not acknowledged is undecided and is not sent again
//!   by the same delivery. What was not written goes over another connection.
//! - A message with time to live 0 goes over the connections that are up at that moment, or not at
//!   all.
//!
//! How long a device can be without an answer, where T is [`MqttSettings::ack_timeout`] and a
//! session checks eight times in T:
//! - T after the last acknowledgement on its connection, the connection ends, and what is in
//!   flight on it is undecided. A broker that acknowledges anything keeps its connection, however
//!   slow it is.
//! - 3 T after a message that was sent later was acknowledged, the device alone is undecided: a
//!   broker acknowledges in order, so it has lost this message. With the T within which something
//!   must be acknowledged, a device that is never acknowledged delays its delivery by a little more
//!   than 4 T. Its packet identifier is not used again in that session. The session is renewed as
//!   soon as nothing is in flight on it; once half of its window is lost, it takes nothing new
//!   until then.
//! - [`MqttSettings::delivery_timeout`] after the delivery began, it ends in any case. In the
//!   second half of that time nothing more is handed over, and what is left is put off as busy.
//!   This bounds a delivery to a broker that is much too slow for its window.
//! - [`MqttSettings::offline_timeout`] after the last connection went down, what is left of the
//!   delivery is put off as unavailable.
//!
//! How the broker's settings limit the rate: with a small receive maximum every connection waits
//! for acknowledgements most of the time (Mosquitto announces 20 unless `max_inflight_messages` is
//! set), and a broker that leaves Nagle's algorithm on holds the last acknowledgements of a lone
//! delivery back for 40 ms (Mosquitto needs `set_tcp_nodelay true`).
//!
//! - `delivery`: a batch: cut into sub-batches, and sent again over other connections where one
//!   broke
//! - `sub_batch`: the part of a batch that one connection sends
//! - `pool`, `connection`: the connections to the broker, re-established in the background
//! - `session`: one MQTT session after its handshake
//! - `args`: the flags about the broker
//! - `expiry`: a message's lifetime as MQTT counts it

mod args;
mod connection;
mod delivery;
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

pub use self::{
    args::{MqttArgs, MqttBrokerArgs, MqttTuningArgs},
    settings::MqttSettings,
};
use self::{delivery::BatchDelivery, pool::Pool};
use super::{
    contract::{Connections, Outcome, Outgoing, Transport},
    sending::{Proceed, Sending},
};

/// The MQTT transport. Its connections work in the background from the start.
pub struct MqttTransport {
    url: MqttUrl,
    settings: Arc<MqttSettings>,
    pool: Pool,
}

impl MqttTransport {
    /// Begins to connect, and returns at once: an unavailable broker is tried again in the
    /// background.
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
