//! The HTTP contract of `ingest`, over real sockets, in front of RabbitMQ and Redis. Most tests
//! write their requests byte by byte: what a well-behaved client would never send is the point.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

#[path = "ingest/answers.rs"]
mod answers;
#[path = "ingest/batch.rs"]
mod batch;
#[path = "ingest/client.rs"]
mod client;
#[path = "ingest/devices.rs"]
mod devices;
#[path = "ingest/fields.rs"]
mod fields;
#[path = "ingest/http2.rs"]
mod http2;
#[path = "ingest/limits.rs"]
mod limits;
#[path = "ingest/outages.rs"]
mod outages;
#[path = "ingest/random.rs"]
mod random;
#[path = "ingest/service.rs"]
mod service;
#[path = "ingest/stopping.rs"]
mod stopping;
#[path = "ingest/wire.rs"]
mod wire;
