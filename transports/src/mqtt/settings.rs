//! The bounds of the MQTT transport.

use std::time::Duration;

use push_boot::tune::{HOUR, MOMENT, Tuning};

/// Connections, window and time limits of the transport at its broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MqttSettings {
    /// Connections that share broadcasts, 1 to [`MqttSettings::MAX_CONNECTIONS`]. One more carries
    /// small deliveries only, so that a push to one device does not wait for what a broadcast has
    /// in flight.
    pub connections: usize,
    /// The most unacknowledged messages of a connection, 1 or more. The broker's receive maximum
    /// may lower it.
    pub window: u16,
    /// The time for connecting, the TLS handshake and the MQTT handshake together.
    pub connect_timeout: Duration,
    /// The time for which a broker may acknowledge nothing while something is in flight, or leave a
    /// ping unanswered, before its connection counts as broken. A single message is waited for
    /// three times as long once a later one was acknowledged.
    pub ack_timeout: Duration,
    /// The time that a delivery waits for a connection while none is up. Devices that were not
    /// handed over by then are tried later.
    pub offline_timeout: Duration,
    /// The longest time of a delivery to a broker that acknowledges anything at all. In the first
    /// half devices are handed over. In the second half their acknowledgements are waited for. It
    /// must be far below the time after which the queue takes an unacknowledged message back: 30
    /// minutes for RabbitMQ.
    pub delivery_timeout: Duration,
    /// The pause before the first new try to connect; doubled with each failure.
    pub reconnect_first: Duration,
    /// The longest such pause.
    pub reconnect_longest: Duration,
}

impl MqttSettings {
    /// The most connections for broadcasts.
    pub const MAX_CONNECTIONS: usize = 63;

    /// Returns the constants, or what replaces them.
    pub fn read(tuning: &mut Tuning) -> Self {
        let mut all = Self::default();
        tuning.count("mqtt-connections", &mut all.connections, 1..=Self::MAX_CONNECTIONS);
        tuning.count("mqtt-window", &mut all.window, 1..=u16::MAX);
        tuning.time("mqtt-connect-timeout", &mut all.connect_timeout, MOMENT..=HOUR);
        tuning.time("mqtt-ack-timeout", &mut all.ack_timeout, MOMENT..=HOUR);
        tuning.time("mqtt-offline-timeout", &mut all.offline_timeout, Duration::ZERO..=HOUR);
        all
    }
}

impl Default for MqttSettings {
    fn default() -> Self {
        Self {
            connections: 4,
            window: 512,
            connect_timeout: Duration::from_secs(5),
            ack_timeout: Duration::from_secs(10),
            offline_timeout: Duration::from_secs(5),
            delivery_timeout: Duration::from_secs(600),
            reconnect_first: Duration::from_millis(100),
            reconnect_longest: Duration::from_secs(5),
        }
    }
}
