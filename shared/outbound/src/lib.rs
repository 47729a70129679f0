//! Every HTTP request that leaves the service: to push providers, to browsers' push services and to
//! webhooks.
//!
//! Constraints it lives under:
//! - A tenant chooses where some requests go. They must not lead into the operator's network, so
//!   each address is checked before it is connected to, on every connect.
//! - A request that may have been processed must not be sent again as if it had not been. So the
//!   result of each is one of three: answered, certainly not processed, or unanswered.
//! - A server that is slow, dead or hostile must cost its own requests only. Each wait, buffer and
//!   number is bounded.
//! - Errors and logs have no credentials and no bodies. Errors may be shown to tenants.
//!
//! - [`addresses`]: which addresses may be reached
//! - [`origin`]: where a request goes, and who chose that
//! - [`connect`]: resolve, check, connect, proxy, TLS
//! - `connection`: one connection with HTTP/2 or HTTP/1.1, its limit, its pings
//! - `pool`: the connections to one origin, and who waits for them; all pools, and the bounds of the process
//! - `permits`: the connections of the process, and who gets the next one
//! - [`client`]: sending a request
//! - [`exchange`]: what is known of it afterwards
//! - [`error`]: why there is no connection

pub mod addresses;
pub mod client;
pub mod connect;
mod connection;
pub mod error;
pub mod exchange;
pub mod origin;
mod permits;
mod pool;

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use push_tls::{FileError, client::ClientTls};
use tokio::time::timeout;

use self::pool::Shared;

pub use self::{
    addresses::Permission,
    client::Client,
    connect::{
        StepTimes,
        proxy::Proxy,
        resolve::{Resolve, SystemResolver},
    },
    error::{Step, Unreachable, Why},
    exchange::{Answer, Exchange, NotProcessed, Unanswered},
    origin::{Origin, Owner, PoolKey},
    pool::{Counts, Jitter, Limits},
};

/// The time in which [`Outbound::close`] still takes answers. A service closes its connections after
/// its work has ended, so few requests wait then, and one that is never answered must not hold up the
/// stop until its deadline.
pub const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// How requests leave the service.
#[derive(Clone)]
pub struct OutboundSettings {
    /// The addresses that tenants' requests may reach.
    pub permission: Permission,
    /// A file with certificate authorities that are trusted beside those of the machine.
    pub authorities: Option<PathBuf>,
    /// The proxy for connections with TLS.
    pub proxy: Option<Proxy>,
    /// The bounds of the connections.
    pub limits: Limits,
    /// The time for each step to a connection.
    pub times: StepTimes,
    /// Finds the addresses of hosts.
    pub resolver: Arc<dyn Resolve>,
    /// The randomness of pauses between connects.
    pub jitter: Jitter,
}

impl OutboundSettings {
    /// The usual settings: nothing is allowed beyond the public internet, and there is no proxy.
    pub fn new(jitter: Jitter) -> Self {
        Self {
            permission: Permission::default(),
            authorities: None,
            proxy: None,
            limits: Limits::default(),
            times: StepTimes::default(),
            resolver: Arc::new(SystemResolver),
            jitter,
        }
    }
}

/// Sends the requests of a process, over connections that it shares among them.
#[derive(Debug)]
pub struct Outbound {
    shared: Arc<Shared>,
}

impl Outbound {
    /// Reads the file of certificate authorities. Nothing is connected to until a request is sent.
    ///
    /// # Errors
    /// Says why that file cannot be used. A machine without authorities is no error here: it fails
    /// connections with TLS, and a service may have none.
    pub fn new(settings: OutboundSettings) -> Result<Arc<Self>, FileError> {
        let tls = match ClientTls::trusting_also(settings.authorities.clone()) {
            Ok(tls) => Some(tls),
            Err(error) if settings.authorities.is_some() => return Err(error),
            Err(error) => {
                tracing::debug!(%error, "requests with TLS cannot leave this machine");
                None
            }
        };
        let OutboundSettings { permission, proxy, limits, times, resolver, jitter, .. } = settings;
        let connector = connect::Connector::new(permission, proxy, tls, times, resolver);
        Ok(Arc::new(Self { shared: Arc::new(Shared::new(connector, limits, jitter)) }))
    }

    /// Returns a client for the origin. Clients of equal origins and keys share connections.
    pub fn origin(&self, origin: Origin, key: PoolKey) -> Client {
        let (authority, shared) = (origin.authority(), Arc::clone(&self.shared));
        Client { place: Arc::new((origin, key)), authority, shared }
    }

    /// The numbers for metrics.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Takes no more requests, gives up connects, and closes each connection as soon as its requests
    /// are answered. After [`CLOSE_WAIT`] the others are closed too, and their requests are unanswered.
    pub async fn close(&self) {
        self.shared.close();
        if timeout(CLOSE_WAIT, self.shared.tasks.wait()).await.is_err() {
            tracing::info!("requests were not answered before their connections were closed");
        }
        self.shared.cancel.cancel();
        self.shared.tasks.wait().await;
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        self.shared.close();
        self.shared.cancel.cancel();
    }
}

impl fmt::Debug for OutboundSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboundSettings")
            .field("permission", &self.permission)
            .field("authorities", &self.authorities)
            .field("proxy", &self.proxy)
            .field("limits", &self.limits)
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}
