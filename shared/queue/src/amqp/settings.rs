//! Timeouts and limits of the RabbitMQ engine.

use std::time::Duration;

use push_tls::client::ClientTls;

/// Settings of the RabbitMQ engine.
#[derive(Debug, Clone)]
pub struct AmqpSettings {
    /// The program's name in the server's list of connections.
    pub program: String,
    /// Authority and certificate for `amqps://`; without it, the machine's authorities are trusted.
    pub tls: Option<ClientTls>,
    /// Interval of heartbeats, in whole seconds, unless the URL has `?heartbeat=`. A connection on
    /// which the server is silent for twice as long is lost.
    pub heartbeat: Duration,
    /// Longest wait until one connection is open, including its handshakes.
    pub connect_timeout: Duration,
    /// Longest wait for the answer to a request other than a publish.
    pub request_timeout: Duration,
    /// The expected time of a confirm. A publish for an operator's command waits no longer. Every
    /// other publish waits on, but a session in which a confirm takes three times as long, while
    /// the server has not blocked it, is ended.
    pub publish_timeout: Duration,
    /// The most publishes that wait for their confirms; further ones wait for a permit.
    /// This also bounds the memory that they take.
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
            tls: None,
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
