//! The embedded MQTT broker: devices connect to it, the worker publishes to it.
//!
//! It is a broker for one purpose. A device reads exactly one topic, and only the worker of this
//! process publishes; so there are no filters to match, no retained messages, no wills, no QoS 2,
//! and nothing of one device is ever another's. What is left is a session for each device with the
//! messages that wait for it, in memory, bounded in bytes. The packets are read and written by
//! `rmqtt-codec`.
//!
//! A general broker was embedded before. Its sessions kept their sockets while they were offline,
//! its queues were bounded in messages only, and a hook that forgets one case would have opened it
//! to strangers; here what is not allowed has no code.
//!
//! Sessions end with the process: devices connect again, and what waited for them is lost.
//!
//! In the order in which a connection lives:
//! - `listener`, `admission`: who may connect, and how many
//! - `connection`: one connection from the first byte to the last
//! - `handshake`, `authentication`: CONNECT, and who the client is
//! - `device`, `worker`: the two kinds of clients
//! - `link`, `wire`: their bytes and their packets
//! - `sessions`, `registry`, `session`, `waiting`: the sessions, their number, one of them, and the
//!   memory of all

mod admission;
mod authentication;
mod connection;
mod context;
mod device;
mod end;
mod handshake;
mod link;
mod listener;
mod metrics;
mod registry;
mod session;
mod sessions;
mod settings;
mod waiting;
mod wire;
mod worker;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use prometheus_client::registry::Registry;
use push_model::secret::Secret;
use push_mqtt::{BadMqttUrl, MqttUrl};
use push_tls::{
    FileError,
    server::{Acceptor, AcceptorOptions, RELOAD_INTERVAL},
};
use tokio_util::sync::CancellationToken;

use self::{
    admission::{Admission, AdmissionLimits},
    authentication::WorkerPassword,
    context::{Context, Door},
    session::SessionLimits,
    sessions::Sessions,
};
pub use self::{
    authentication::{DeviceAuthenticator, Login, LoginRefusal, WORKER},
    settings::{BrokerArgs, BrokerSettings},
};

/// Devices that have not logged in yet, in total and of one address.
const UNAUTHENTICATED: usize = 1_000;
const UNAUTHENTICATED_OF_ADDRESS: usize = 100;

/// Connections of the worker: more than it may be told to open.
const WORKER_CONNECTIONS: usize = 128;

/// TLS of the devices' listener. The handshake counts towards the time for the login.
const TLS: AcceptorOptions = AcceptorOptions {
    // No agreed name: MQTT clients that ask for one ask for that of their provider.
    alpn: &[],
    handshake_timeout: connection::HANDSHAKE_TIMEOUT,
    reload_interval: RELOAD_INTERVAL,
};

/// Why the broker did not start.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The address is taken, or not one of this machine.
    #[error("cannot listen for MQTT on {address}")]
    Listen {
        /// The address from the settings.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The certificate cannot be used.
    #[error("the certificate of the MQTT broker cannot be used")]
    Certificate(#[from] FileError),
    /// The worker's address makes no URL.
    #[error("the worker cannot be told the broker's address")]
    WorkerUrl(#[from] BadMqttUrl),
}

/// A running broker. It stops when dropped.
#[derive(Debug)]
pub struct Broker {
    address: SocketAddr,
    uses_tls: bool,
    worker_url: MqttUrl,
    stop: CancellationToken,
}

impl Broker {
    /// Starts listening and serving. When this returns, devices and the worker can connect. The
    /// metrics are added to the registry.
    ///
    /// Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// If the address cannot be listened on; then nothing was started.
    pub fn start(
        settings: BrokerSettings,
        authenticator: Arc<dyn DeviceAuthenticator>,
        worker_password: &Secret,
        registry: &mut Registry,
    ) -> Result<Self, BrokerError> {
        let bind = |address| {
            let failed = |source| BrokerError::Listen { address, source };
            let listener = listener::bind(address).map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            Ok::<_, BrokerError>((listener, address))
        };
        let (devices, address) = bind(settings.listen)?;
        let (worker, worker_address) = bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let worker_url: MqttUrl = format!("mqtt://{worker_address}").parse()?;
        let worker_url = worker_url.with_login(WORKER, worker_password.expose());

        let tls = settings.tls.as_ref().map(|tls| Acceptor::new(tls, TLS)).transpose()?;
        let stop = CancellationToken::new();
        let limits =
            SessionLimits { messages: settings.session_messages, bytes: settings.session_waiting };
        let sessions = Sessions::new(settings.sessions, settings.waiting, limits);
        tokio::spawn(Sessions::sweep(Arc::downgrade(&sessions), authenticator.clone()));
        let context = Arc::new(Context {
            sessions,
            devices: authenticator,
            worker: WorkerPassword::new(worker_password),
            longest_keep: settings.session_expiry,
            stop: stop.clone(),
        });
        let connections = settings.connections;
        let of_devices = Admission::new(AdmissionLimits {
            connections,
            // One address alone must not use up what a small limit of descriptors leaves.
            of_address: settings.address_connections.min(connections.div_ceil(2)),
            unauthenticated: UNAUTHENTICATED.min(connections.div_ceil(2)),
            unauthenticated_of_address: UNAUTHENTICATED_OF_ADDRESS.min(connections.div_ceil(4)),
        });
        metrics::register(registry, context.clone(), of_devices.clone());
        let of_worker = Admission::new(AdmissionLimits {
            connections: WORKER_CONNECTIONS,
            of_address: WORKER_CONNECTIONS,
            unauthenticated: WORKER_CONNECTIONS,
            unauthenticated_of_address: WORKER_CONNECTIONS,
        });
        tokio::spawn(listener::accept(devices, Door::Devices, tls, of_devices, context.clone()));
        tokio::spawn(listener::accept(worker, Door::Worker, None, of_worker, context));
        Ok(Self { address, uses_tls: settings.tls.is_some(), worker_url, stop })
    }

    /// The address where devices connect, with the actual port if the settings say 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether devices connect with TLS.
    pub fn uses_tls(&self) -> bool {
        self.uses_tls
    }

    /// Where and how the worker of this process connects.
    pub fn worker_url(&self) -> &MqttUrl {
        &self.worker_url
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
