//! What arrived at a server.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

/// A device's message that a provider took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The device, as the provider knows it.
    pub device: String,
    /// The body of the request, which may be for several devices.
    pub body: Bytes,
}

/// What arrived at a server.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// How often each device was in a request.
    pub asked: BTreeMap<String, u32>,
    /// How often each device's message was taken.
    pub taken: BTreeMap<String, u32>,
    /// The requests.
    pub requests: u64,
    /// The connections that were accepted.
    pub connections: u32,
    /// The connections whose handshake of TLS failed.
    pub failed_handshakes: u32,
    /// The connections that were ended because they had one stream too many.
    pub punished: u32,
    /// The most requests that one connection had at a time.
    pub most_streams: usize,
    /// The different authorizations.
    pub authorizations: BTreeSet<String>,
    /// The headers of the last request.
    pub headers: BTreeMap<String, String>,
    /// The body of the last request.
    pub body: Vec<u8>,
}

impl Record {
    /// The number of devices whose message was taken.
    pub fn devices(&self) -> usize {
        self.taken.len()
    }

    /// The most copies that a device has.
    pub fn most_copies(&self) -> u32 {
        self.taken.values().copied().max().unwrap_or_default()
    }
}
