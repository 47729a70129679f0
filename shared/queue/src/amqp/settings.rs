//! How the engine behaves towards its server: times and bounds.

use std::time::Duration;

/// Settings of the RabbitMQ engine.
#[derive(Debug, Clone)]
pub struct AmqpSettings {
    /// The program, as operators see it in the list of connections.
    pub program: String,
    /// Interval of heartbeats, in whole seconds, unless the URL has `?heartbeat=`. A server that
    /// is silent for twice as long is taken for lost.
    pub heartbeat: Duration,
    /// Longest wait for one connection to be opened, with its handshakes.
    pub connect_timeout: Duration,
    /// Longest wait for the answer to a request other than a publish.
    pub request_timeout: Duration,
    /// How long a confirm may take. An operator's publish waits no longer. Any other is awaited,
    /// but a session in which a confirm takes three times as long, without being blocked by the
    /// server, is given up.
    pub publish_timeout: Duration,
    /// The most publishes that wait for their confirms at once; more wait for their turn. It also
    /// bounds the memory that they take.
    pub publishes_in_flight: usize,
    /// First pause before a lost connection is opened again; each further one is twice as long.
    pub first_pause: Duration,
    /// Longest pause between two attempts.
    pub longest_pause: Duration,
}

impl Default for AmqpSettings {
    fn default() -> Self {
        Self {
            program: "push".to_owned(),
            heartbeat: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(15),
            publish_timeout: Duration::from_secs(10),
            publishes_in_flight: 1024,
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(10),
        }
    }
}
