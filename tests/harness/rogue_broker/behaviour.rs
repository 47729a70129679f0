//! Behaviour of the broker. All of it can be changed while it runs.

use std::{collections::BTreeMap, num::NonZeroU16};

/// Behaviour of the broker. By default it acknowledges everything immediately.
#[derive(Debug, Clone)]
pub struct Behaviour {
    /// The most acknowledgements a second, over all connections together and evenly spread.
    /// `None`: no limit.
    pub acks_per_second: Option<u32>,
    /// Nothing is acknowledged; messages that come meanwhile are acknowledged when this ends. Pings
    /// are answered.
    pub withholds_acks: bool,
    /// New connections are closed at once. Those that are open stay open.
    pub refuses_connections: bool,
    /// Unacknowledged messages that a connection may have. A client is told when it connects,
    /// so a change holds for later connections.
    pub receive_maximum: NonZeroU16,
    /// Treatment of messages to these topics.
    pub topics: BTreeMap<String, OnPublish>,
}

/// Treatment of a message to a certain topic. Each is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnPublish {
    /// It is never acknowledged.
    Ignore,
    /// The connection is closed, after the acknowledgements of earlier messages were sent.
    Close,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            acks_per_second: None,
            withholds_acks: false,
            refuses_connections: false,
            receive_maximum: NonZeroU16::MAX,
            topics: BTreeMap::new(),
        }
    }
}
