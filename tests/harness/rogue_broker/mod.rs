//! An MQTT 5 broker that counts the messages it is sent, and misbehaves as a test tells it to.
//!
//! Real brokers behave well most of the time, and none reports how often it was sent the same
//! message. This one runs inside the test, has no subscribers and keeps no message: it reads
//! PUBLISH packets, counts them by message and topic, and acknowledges them or not, as
//! [`Behaviour`] says at that moment.
//!
//! It has the parts of MQTT that a publisher with QoS 1 needs. A client that exceeds its receive
//! maximum is disconnected, as the standard demands.

mod behaviour;
mod connection;
mod pace;
mod record;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tokio_util::task::AbortOnDropHandle;

pub use self::behaviour::{Behaviour, OnPublish};
use self::{connection::Connection, pace::Pace, record::Record};

/// A broker that listens on a free port of loopback until it is dropped.
#[derive(Debug)]
pub struct RogueBroker {
    url: String,
    shared: Arc<Shared>,
    _task: AbortOnDropHandle<()>,
}

/// State that all connections share.
#[derive(Debug)]
struct Shared {
    behaviour: watch::Sender<Behaviour>,
    /// Number of times that the test closed all connections.
    closings: watch::Sender<u64>,
    pace: Mutex<Pace>,
    record: Mutex<Record>,
}

impl RogueBroker {
    /// Starts one that behaves well, within the runtime of the test.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("the address of a bound port");
        let shared = Arc::new(Shared {
            behaviour: watch::Sender::new(Behaviour::default()),
            closings: watch::Sender::new(0),
            pace: Mutex::new(Pace::new()),
            record: Mutex::default(),
        });
        let task = tokio::spawn(accept(listener, shared.clone()));
        Self { url: format!("mqtt://{address}"), shared, _task: AbortOnDropHandle::new(task) }
    }

    /// `mqtt://127.0.0.1:port`
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Changes its behaviour from now on.
    pub fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        self.shared.behaviour.send_modify(change);
    }

    /// Closes all connections. New ones are accepted unless
    /// [`Behaviour::refuses_connections`] says otherwise.
    pub fn close_connections(&self) {
        self.shared.closings.send_modify(|closings| *closings += 1);
    }

    /// Returns how often each topic was sent the message with this `message_id` in its JSON payload,
    /// acknowledged or not. Payloads without one count as the message with an empty id.
    pub fn received_by_topic(&self, message_id: &str) -> BTreeMap<String, u32> {
        self.shared.record().received_by_topic(message_id)
    }

    /// Returns how many PUBLISH packets it has read.
    pub fn received(&self) -> u64 {
        self.shared.record().received
    }

    /// Returns how many of them it has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.shared.record().acknowledged
    }
}

impl Shared {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves connections until it is dropped, and they with it.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // An error is one client's, or passes.
                if let Ok((stream, _)) = accepted
                    && !shared.behaviour.borrow().refuses_connections
                {
                    connections.spawn(Connection::new(shared.clone()).serve(stream));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
