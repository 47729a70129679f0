//! Ways for a message to leave the service: the trait [`Transport`], with a file or folder for each
//! implementation.
//!
//! A transport gets a message and a batch of devices, and returns an outcome for each device. It
//! knows nothing of queues, checkpoints or the ledger, and decides nothing about retries beyond its
//! own connections. A failure is reported per device, so that one device, or an unavailable
//! provider, affects no other device:
//! - [`Outcome::Later`] for a device whose message was not accepted, and which may be tried again;
//! - [`Outcome::Undecided`] for a device whose message left the worker without an answer. Another
//!   try may send it twice, so the caller makes it later and in small batches.
//!
//! - `contract`: the trait, and a message
//! - `lifetime`, `outcome`: the time that a message has, and the outcome of one device
//! - `sending`: the permission to write more, and outcomes that are known early
//! - `dispatch`: splits a batch by the transport of its devices
//! - `metrics`: readiness and connections of each transport
//! - `settings`: the flags of all, and the transports that they ask for
//! - `http`: FCM, APNs, Web Push and webhooks
//! - `mqtt`: publishes to an MQTT 5 broker
//! - `discard`: sends nothing, for load tests

mod contract;
mod discard;
mod dispatch;
pub mod http;
mod lifetime;
mod metrics;
pub mod mqtt;
mod outcome;
mod sending;
mod settings;

pub use self::{
    contract::{Connections, Outgoing, Transport},
    discard::Discard,
    dispatch::{Transports, WaitGuard},
    lifetime::Lifetime,
    outcome::Outcome,
    sending::{Answers, FEW, Permission, Proceed, Sending, StopReason, few_of},
    settings::{TransportArgs, TransportSettings, discard_latency},
};
