//! What a test gets from its run: the URLs of the shared servers, and a namespace of its own.
//!
//! The URLs are passed in the environment, because test runners start every test binary (nextest:
//! every test) as a process of its own.

use uuid::Uuid;

/// Environment variable with the URL of the shared Redis.
pub const REDIS_URL: &str = "PUSH_TEST_REDIS_URL";
/// Environment variable with the URL of the shared Redis Cluster.
pub const REDIS_CLUSTER_URL: &str = "PUSH_TEST_REDIS_CLUSTER_URL";
/// Environment variable with the URL of the shared RabbitMQ.
pub const AMQP_URL: &str = "PUSH_TEST_AMQP_URL";
/// Environment variable with the URL of the shared Mosquitto.
pub const MQTT_URL: &str = "PUSH_TEST_MQTT_URL";

/// The Redis of this run: `redis://127.0.0.1:port`.
///
/// # Panics
/// Outside of a run of `tests/run`.
pub fn redis_url() -> String {
    shared(REDIS_URL)
}

/// The Redis Cluster of this run: `redis-cluster://127.0.0.1:port,127.0.0.1:port,…`.
///
/// # Panics
/// Outside of a run of `tests/run`.
pub fn redis_cluster_url() -> String {
    shared(REDIS_CLUSTER_URL)
}

/// The RabbitMQ of this run: `amqp://guest:guest@127.0.0.1:port/%2f`.
///
/// # Panics
/// Outside of a run of `tests/run`.
pub fn amqp_url() -> String {
    shared(AMQP_URL)
}

/// The Mosquitto of this run: `mqtt://127.0.0.1:port`.
///
/// # Panics
/// Outside of a run of `tests/run`.
pub fn mqtt_url() -> String {
    shared(MQTT_URL)
}

/// A unique name for the queues and keys of one test: 17 of `a-z 0-9`.
///
/// It is short because it is part of every key.
pub fn namespace() -> String {
    let (_, random) = Uuid::now_v7().as_u64_pair();
    format!("t{random:016x}")
}

/// A pattern of the keys in Redis that hold the expanded ledger entry of the message with this id.
pub fn ledger_key_pattern(id: &str) -> String {
    let id: String = id.chars().filter(char::is_ascii_hexdigit).take(24).collect();
    format!("*:m{id}.*")
}

fn shared(variable: &str) -> String {
    match std::env::var(variable) {
        Ok(url) => url,
        Err(_) => panic!("{variable} is not set: run the tests with ./tests/run"),
    }
}
