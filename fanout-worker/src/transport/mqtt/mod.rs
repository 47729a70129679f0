//! MQTT 5: topic `push/{AppID}/{ClientID}`, QoS 1, message expiry = the time that is left.
//!
//! - `Sent` means that the broker took responsibility: a PUBACK with success.
//! - A delivery is split over several connections ([`MqttSettings::connections`]); each has a
//!   bounded window of unacknowledged messages and takes turns among the deliveries it carries.
//! - A connection that breaks, or whose broker stops answering, is re-established in the
//!   background. What was written to it and not acknowledged is undecided and is not sent again
//!   by the same delivery. What was not written goes over another connection.
//! - A message with time to live 0 goes over what is up at that moment, or not at all.
//!
//! How long a device can be without an answer, where T is [`MqttSettings::ack_timeout`] and a
//! session looks eight times in T:
//! - T after the last acknowledgement on its connection, the connection ends, and what is in
//!   flight on it is undecided. A broker that acknowledges anything keeps its connection, however
//!   slow it is.
//! - 3 T after a message that was sent later was acknowledged, the device alone is undecided: a
//!   broker acknowledges in order, so it has lost this one. With the T within which something
//!   must be acknowledged, a device that is never acknowledged holds up its delivery for a good
//!   4 T. Its packet identifier is not used again in that session. The session is renewed as soon
//!   as nothing is in flight on it, and takes nothing new before that once half of its window is
//!   lost.
//! - [`MqttSettings::delivery_timeout`] after the delivery began, it ends in any case. In the
//!   second half of that time nothing more is handed over, and what is left is put off as busy.
//!   This bounds a delivery to a broker that is much too slow for its window.
//! - [`MqttSettings::patience`] after the last connection went down, what is left of the delivery
//!   is put off as away.
//!
//! What the broker's settings do to the rate: a small receive maximum makes every connection
//! stand still most of the time (Mosquitto announces 20 unless `max_inflight_messages` is set),
//! and one that does not disable Nagle's algorithm holds the last acknowledgements of a lone
//! delivery back for 40 ms (Mosquitto needs `set_tcp_nodelay true`).

mod chunk;
mod connection;
mod delivery;
mod exchange;
mod expiry;
mod output;
mod packet;
mod pool;
mod session;
mod settings;
#[cfg(test)]
mod tests;
mod window;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use push_mqtt::MqttUrl;
use push_model::{device::Target, time::UnixMillis};

pub use self::settings::MqttSettings;
use self::{delivery::Delivery, pool::Pool};
use super::{Outcome, Outgoing, Transport};

/// The MQTT transport. Its connections work in the background from the start.
pub struct MqttTransport {
    url: MqttUrl,
    settings: Arc<MqttSettings>,
    pool: Pool,
}

impl MqttTransport {
    /// Begins to connect, and returns at once: a broker that is away is waited for.
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
        now: UnixMillis,
    ) -> Vec<Outcome> {
        if message.lifetime.is_over(now) {
            return vec![Outcome::Expired; targets.len()];
        }
        Delivery::new(&self.pool, &self.settings, message, now).run(targets).await
    }

    async fn ready(&self) -> bool {
        *self.pool.up().borrow() != 0
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
