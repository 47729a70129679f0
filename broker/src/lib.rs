//! The embedded MQTT broker: devices connect to it, the worker publishes to it.
//!
//! A device reads exactly one topic, and only workers publish. So the broker has no code for
//! filters, retained messages, wills, QoS 2 or publishing by devices, and no setting can allow
//! them. It keeps a session for each device, with the messages that wait for it, in memory that is
//! bounded in bytes. `rmqtt-codec` reads and writes the packets.
//!
//! Sessions and their messages are saved to a file at intervals and when the broker stops
//! (`saving`; `store` is the file), so they survive a restart.
//!
//! In the order in which a connection lives:
//! - `proxies`: which client a proxied connection belongs to
//! - `listener`, `admission`: who may connect, and how many
//! - `websocket`: how a browser connects, and what it has of HTTP
//! - `connection`: one connection from the first byte to the last
//! - `authentication`, `device_logins`: who the client is
//! - `login_log`: counts failed logins for the audit log
//! - `packets`: what a client may send, and the answers
//! - `sessions`: the sessions, their number, and the memory of their messages
//! - `clocks`: when messages expire
//! - `context`, `metrics`, `settings`: what all connections share, what operators see, the bounds
//!
//! `pushctl standalone` runs it in its own process; `pushctl broker` runs it alone.

mod admission;
mod authentication;
mod clocks;
mod connection;
mod context;
mod device_logins;
mod error;
mod listener;
mod login_log;
mod metrics;
mod packets;
mod proxies;
mod saving;
mod sessions;
mod settings;
mod store;
mod websocket;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use prometheus_client::registry::Registry;
use push_boot::proxy_protocol::TrustedProxies;
use push_model::secret::Secret;
use push_mqtt::MqttUrl;
use push_tls::server::{Acceptor, AcceptorOptions, RELOAD_INTERVAL};
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use self::{
    admission::{Admission, AdmissionLimits},
    authentication::WorkerPassword,
    context::{Context, Door},
    login_log::LoginLog,
    proxies::Arrivals,
    saving::Saving,
    sessions::{SessionLimits, Sessions},
};
pub use self::{
    authentication::{DeviceAuthenticator, Login, LoginRefusal, WORKER},
    device_logins::DeviceLogins,
    error::BrokerError,
    settings::{
        BrokerArgs, BrokerSettings, LoginLogSettings, SavingSettings, WorkerDoorSettings,
        refuse_in_clear,
    },
    store::StoreError,
    websocket::{Origins, WEBSOCKET_PATH, WebSockets},
};

/// Connections to the devices' listener that have not logged in yet, in total and of one address.
const UNAUTHENTICATED: usize = 1_000;
const UNAUTHENTICATED_OF_ADDRESS: usize = 100;

/// Connections on the workers' listener that have not logged in yet. They come on top of the workers'
/// own, and a new one displaces an old one, so idle connections cannot keep a worker out.
const UNAUTHENTICATED_WORKERS: usize = 64;

/// The time a stop waits for connections to end: longer than one connection needs.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// TLS of the listeners. The handshake counts towards the time for the login.
const TLS: AcceptorOptions = AcceptorOptions {
    // MQTT has no registered ALPN name; clients that send one send that of their provider.
    alpn: &[],
    handshake_timeout: connection::HANDSHAKE_TIMEOUT,
    reload_interval: RELOAD_INTERVAL,
};

/// A running broker. Dropping it stops it without saving its sessions.
#[derive(Debug)]
pub struct Broker {
    address: SocketAddr,
    websocket_address: Option<SocketAddr>,
    websockets: WebSockets,
    uses_tls: bool,
    worker_url: MqttUrl,
    saving: Option<Arc<Saving>>,
    login_log: Arc<LoginLog>,
    connections: TaskTracker,
    stop: CancellationToken,
}

impl Broker {
    /// Reads the saved sessions and starts serving. When this returns, devices and the worker can
    /// connect. Adds the metrics to the registry.
    ///
    /// Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// If it cannot listen on an address, cannot use the certificate, or cannot read the saved sessions;
    /// then nothing was started. A damaged file of sessions is moved aside instead, and that is logged.
    pub fn start(
        settings: BrokerSettings,
        authenticator: Arc<dyn DeviceAuthenticator>,
        worker_password: &Secret,
        registry: &mut Registry,
    ) -> Result<Self, BrokerError> {
        let bind = |address| {
            let listener = listener::bind(address)?;
            let bound = listener.local_addr()?;
            Ok::<_, io::Error>((listener, bound))
        };
        let listen = settings.listen;
        let (devices, address) =
            bind(listen).map_err(|source| BrokerError::Listen { address: listen, source })?;
        let bind_websockets = |address| {
            bind(address).map_err(|source| BrokerError::ListenForWebSockets { address, source })
        };
        let websockets = settings.websocket_listen.map(bind_websockets).transpose()?;
        let listen = settings.workers.listen;
        let (workers, worker_address) = bind(listen)
            .map_err(|source| BrokerError::ListenForWorkers { address: listen, source })?;
        let tls = settings.tls.as_ref().map(|tls| Acceptor::new(tls, TLS)).transpose()?;
        let worker_tls = tls.clone().filter(|_| settings.workers.encrypted);
        let scheme = if worker_tls.is_some() { "mqtts" } else { "mqtt" };
        let worker_url: MqttUrl = format!("{scheme}://{worker_address}").parse()?;
        let worker_url = worker_url.with_login(WORKER, worker_password.expose());

        let stop = CancellationToken::new();
        let empty = || {
            let limits = SessionLimits {
                messages: settings.session_messages,
                bytes: settings.session_waiting,
            };
            Sessions::new(settings.sessions, settings.connections, settings.waiting, limits)
        };
        let (sessions, saving) = match &settings.saving {
            Some(saving) => {
                let (sessions, saving) = Saving::open(saving, empty)?;
                (sessions, Some(saving))
            }
            None => (empty(), None),
        };
        let context = Arc::new(Context {
            sessions: sessions.clone(),
            devices: authenticator.clone(),
            worker: WorkerPassword::new(worker_password),
            longest_keep: settings.session_expiry,
            stop: stop.clone(),
            connections: TaskTracker::new(),
        });
        let of_devices = Admission::new(of_devices(&settings));
        let of_workers = Admission::new(of_workers(settings.workers.connections));
        metrics::register(registry, context.clone(), of_devices.clone(), saving.clone());
        let login_log = LoginLog::new(of_devices.clone(), settings.login_log);

        let connections = context.connections.clone();
        tokio::spawn(Admission::forget_addresses(Arc::downgrade(&of_devices)));
        tokio::spawn(Sessions::sweep_expired(Arc::downgrade(&sessions)));
        tokio::spawn(Sessions::sweep_unauthorised(Arc::downgrade(&sessions), authenticator));
        if let Some(saving) = &saving {
            tokio::spawn(saving.clone().run(stop.clone()));
        }
        tokio::spawn(login_log.clone().run(stop.clone()));
        let trusted = settings.trusted_proxies.clone();
        let origins = settings.websocket_origins;
        let of_pages = WebSockets {
            admission: of_devices.clone(),
            context: context.clone(),
            origins: origins.clone(),
        };
        let of_devices = Arrivals::new((Door::Devices, tls), of_devices, context.clone(), trusted);
        of_devices.register(registry);
        let websocket_address = websockets.as_ref().map(|(_, address)| *address);
        if let Some((websockets, address)) = websockets {
            info!(%address, path = WEBSOCKET_PATH, "MQTT over WebSocket is served");
            let arrivals = of_devices.over_websocket(origins);
            tokio::spawn(listener::accept(websockets, arrivals, context.clone()));
        }
        tokio::spawn(listener::accept(devices, of_devices, context.clone()));
        let none = TrustedProxies::default();
        let of_workers =
            Arrivals::new((Door::Worker, worker_tls), of_workers, context.clone(), none);
        tokio::spawn(listener::accept(workers, of_workers, context));
        let uses_tls = settings.tls.is_some();
        Ok(Self {
            address,
            websocket_address,
            websockets: of_pages,
            uses_tls,
            worker_url,
            saving,
            login_log,
            connections,
            stop,
        })
    }

    /// The address where devices connect, with the actual port if the settings say 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address where devices connect over WebSocket, if the settings have one, with the actual port if
    /// they say 0.
    pub fn websocket_address(&self) -> Option<SocketAddr> {
        self.websocket_address
    }

    /// The way to this broker for the WebSockets of another HTTP listener.
    pub fn websockets(&self) -> &WebSockets {
        &self.websockets
    }

    /// Returns true if devices connect with TLS.
    pub fn uses_tls(&self) -> bool {
        self.uses_tls
    }

    /// The URL, with login, by which the worker connects.
    pub fn worker_url(&self) -> &MqttUrl {
        &self.worker_url
    }

    /// Ends all connections, each with what is already encoded for it and a DISCONNECT, and logs the
    /// last failed logins. Then saves the sessions, so every message that was acknowledged to a worker
    /// is kept.
    ///
    /// # Errors
    /// If the sessions cannot be saved.
    pub async fn stop(self) -> Result<(), StoreError> {
        self.stop.cancel();
        self.connections.close();
        if timeout(STOP_DEADLINE, self.connections.wait()).await.is_err() {
            let connections = self.connections.len();
            warn!(
                runbook = "a-program-stops-with-work-left",
                connections, "MQTT connections did not end in time"
            );
        }
        self.login_log.log();
        match &self.saving {
            Some(saving) => saving.save().await,
            None => Ok(()),
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn of_devices(settings: &BrokerSettings) -> AdmissionLimits {
    let connections = settings.connections;
    AdmissionLimits {
        connections,
        // One address alone must not use up the connections that a small limit of descriptors
        // leaves.
        of_address: settings.address_connections.min(connections.div_ceil(2)),
        unauthenticated: UNAUTHENTICATED.min(connections.div_ceil(2)),
        unauthenticated_of_address: UNAUTHENTICATED_OF_ADDRESS.min(connections.div_ceil(4)),
    }
}

/// Workers may all come from one address, so an address has no bound of its own.
fn of_workers(logged_in: usize) -> AdmissionLimits {
    let connections = logged_in + UNAUTHENTICATED_WORKERS;
    AdmissionLimits {
        connections,
        of_address: connections,
        unauthenticated: UNAUTHENTICATED_WORKERS,
        unauthenticated_of_address: connections,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn idle_connections_of_this_machine_keep_no_worker_out() {
        const WORKERS: usize = 3;
        let admission = Admission::new(of_workers(WORKERS));
        let peer = "127.0.0.1".parse().unwrap();
        let mut idle = Vec::new();
        let mut workers = Vec::new();
        for _ in 0..WORKERS {
            let worker = admission.admit(peer).unwrap();
            // As many idle connections as may open while this worker logs in and all others are connected.
            for _ in 1..UNAUTHENTICATED_WORKERS {
                idle.push(admission.admit(peer).unwrap());
                // A displaced connection ends.
                idle.retain(|permit| !permit.displaced().is_cancelled());
            }
            assert!(!worker.displaced().is_cancelled());
            worker.logged_in();
            workers.push(worker);
        }
    }
}
