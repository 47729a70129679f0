//! What a hostile tenant, device or stranger does to the others: each attack in a bounded form, and
//! how those who do nothing wrong are served meanwhile.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

mod audit_log;
mod broker_logins;
mod connections;
mod credentials;
mod embedded_broker;
mod evictions;
mod http2;
mod quotas;
mod secrets;
mod standalone;
mod tenants;
mod texts;

use push_test_support as support;
