//! The harness of the suites: real servers that are private to the run, a namespace for every test, and
//! waiting for conditions instead of sleeping.
//!
//! A run has one Redis, one Redis Cluster, one RabbitMQ and one Mosquitto, each started when the first
//! test asks for it ([`run`]). Tests share them, each in its own [`namespace`]. A test that breaks a
//! server starts its own from [`servers`]. A test that needs a misbehaving broker starts a
//! [`rogue_broker`], or an [`mqtt_proxy`] if devices must still receive the messages. The providers of
//! phones are played by [`phone_server`]. Nothing is skipped: outside of a run a test that needs a server fails and says how to run it.
//!
//! The harness does not depend on the service's crates: it runs their programs.
//!
//! Every process is started through [`process::Process`], which ends it with its children, and
//! removes its data folder, even when the test itself is killed. A helper panics where what it waits for does
//! not come.

#![allow(clippy::expect_used, clippy::print_stderr, reason = "helpers of tests fail as tests do")]

pub mod api_description;
pub mod broadcast;
pub mod certificates;
pub mod clock;
pub mod devices;
pub mod eventually;
pub mod help;
pub mod invariants;
pub mod mqtt_proxy;
pub mod phone_server;
pub mod ports;
pub mod process;
pub mod readiness;
pub mod rogue_broker;
pub mod run;
pub mod servers;
pub mod service;
pub mod stack;

pub use eventually::eventually;
pub use ports::{Port, free_port};
pub use rogue_broker::RogueBroker;
pub use run::{amqp_url, ledger_key_pattern, mqtt_url, namespace, redis_cluster_url, redis_url};
