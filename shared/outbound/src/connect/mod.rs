//! The way to a connection: resolve, check each address, connect to what was checked, TLS.
//!
//! Constraints it lives under:
//! - A name is resolved once for a connection, and the checked address is the one that is connected
//!   to: a name that changes its address in between leads nowhere else.
//! - Each step has a time of its own, so that the one that hangs is named.
//! - With a proxy, a tenant's host is still resolved and checked here, and the proxy is asked for
//!   the address. The operator's own hosts need no check, so the proxy is asked for the name: a
//!   network that has a proxy often cannot resolve outside names.
//! - A connection without TLS goes past the proxy: to a test server or a gateway that the operator
//!   named, or for a tenant into a network that the operator allowed without TLS.
//!
//! - [`resolve`]: the addresses of a host
//! - `dial`: which address is connected to
//! - [`proxy`]: a tunnel through the operator's proxy
//! - `io`: the stream, which counts what passes

pub(crate) mod dial;
pub(crate) mod io;
pub mod proxy;
pub mod resolve;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use push_tls::client::ClientTls;
use tokio::{net::TcpStream, time::timeout};

use self::{
    dial::{dial, order},
    io::Counted,
    proxy::Proxy,
    resolve::{Lookups, Resolve},
};
use crate::{
    addresses::Permission,
    error::{Step, Unreachable, Why},
    origin::{Host, Origin, Owner, PoolKey},
};

/// The protocols that a server is offered, the preferred one first.
const OFFERED: [&[u8]; 2] = [HTTP2, b"http/1.1"];

const HTTP2: &[u8] = b"h2";

/// The most addresses of a host that a proxy is asked for: one of each family, because it may have
/// only one of them.
const TUNNELS_TRIED: usize = 2;

/// The time that each step to a connection may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepTimes {
    /// Finding the addresses.
    pub resolve: Duration,
    /// Connecting to one of them.
    pub connect: Duration,
    /// The proxy's answer.
    pub proxy: Duration,
    /// The TLS handshake.
    pub tls: Duration,
    /// The server's first SETTINGS.
    pub http: Duration,
}

impl Default for StepTimes {
    /// Allows for the far side of the world and a busy server. A step that takes longer than these
    /// will seldom succeed, and meanwhile requests wait.
    fn default() -> Self {
        Self {
            resolve: Duration::from_secs(5),
            connect: Duration::from_secs(5),
            proxy: Duration::from_secs(10),
            tls: Duration::from_secs(5),
            http: Duration::from_secs(5),
        }
    }
}

/// Makes connections.
#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) permission: Permission,
    pub(crate) proxy: Option<Proxy>,
    pub(crate) tls: Option<ClientTls>,
    pub(crate) times: StepTimes,
    lookups: Lookups,
}

/// A connection on which HTTP can begin.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) io: Counted,
    pub(crate) http2: bool,
}

impl Connector {
    pub(crate) fn new(
        permission: Permission,
        proxy: Option<Proxy>,
        tls: Option<ClientTls>,
        times: StepTimes,
        resolver: Arc<dyn Resolve>,
    ) -> Self {
        Self { permission, proxy, tls, times, lookups: Lookups::new(resolver) }
    }

    /// Connects to the origin. Lookups of names are shared out by key.
    pub(crate) async fn connect(
        &self,
        origin: &Origin,
        key: &PoolKey,
    ) -> Result<Connected, Unreachable> {
        if !origin.tls() {
            let stream = self.direct(origin, key).await?;
            let http2 = origin.owner() == Owner::Operator;
            return Ok(Connected { io: Counted::new(stream), http2 });
        }
        let tls = self.tls.as_ref().ok_or_else(|| Step::Tls.failed(Why::NoAuthorities))?;
        let stream = match &self.proxy {
            Some(proxy) => self.through(proxy, origin, key).await?,
            None => self.direct(origin, key).await?,
        };
        let name = match origin.host() {
            Host::Name(name) => name.clone(),
            Host::Address(address) => address.to_string(),
        };
        let handshake = tls.connect_offering(&name, stream, &OFFERED);
        let stream = within(Step::Tls, self.times.tls, async {
            handshake.await.map_err(|error| Step::Tls.failed(Why::tls(&error)))
        })
        .await?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
        Ok(Connected { io: Counted::new(stream), http2 })
    }

    async fn direct(&self, origin: &Origin, key: &PoolKey) -> Result<TcpStream, Unreachable> {
        let reach = Reach::of(origin);
        let addresses = self.addresses(origin.host(), origin.port(), reach, key).await?;
        dial(&addresses, self.times.connect).await.map_err(|why| Step::Connect.failed(why))
    }

    async fn through(
        &self,
        proxy: &Proxy,
        origin: &Origin,
        key: &PoolKey,
    ) -> Result<TcpStream, Unreachable> {
        if origin.owner() == Owner::Operator {
            return self.tunnel(proxy, origin.host(), origin.port(), key).await;
        }
        let found = self.addresses(origin.host(), origin.port(), Reach::of(origin), key).await?;
        let mut failure = Step::Resolve.failed(Why::NoAddress);
        for address in found.iter().take(TUNNELS_TRIED) {
            let host = Host::Address(address.ip());
            match self.tunnel(proxy, &host, origin.port(), key).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn tunnel(
        &self,
        proxy: &Proxy,
        host: &Host,
        port: u16,
        key: &PoolKey,
    ) -> Result<TcpStream, Unreachable> {
        let at = proxy.host.parse().map_or_else(|_| Host::Name(proxy.host.clone()), Host::Address);
        let addresses = self.addresses(&at, proxy.port, Reach::Anything, key).await;
        let addresses = addresses.map_err(|error| Step::Proxy.failed(error.why))?;
        let stream = dial(&addresses, self.times.connect).await;
        let stream = stream.map_err(|why| Step::Proxy.failed(why))?;
        within(Step::Proxy, self.times.proxy, proxy.tunnel(stream, host, port)).await
    }

    /// Returns the addresses that may be connected to, in the order in which they are tried.
    async fn addresses(
        &self,
        host: &Host,
        port: u16,
        reach: Reach,
        key: &PoolKey,
    ) -> Result<Vec<SocketAddr>, Unreachable> {
        let owner = match reach {
            Reach::Anything => Owner::Operator,
            Reach::Permitted | Reach::PermittedPlain => Owner::Tenant,
        };
        let found = match host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => {
                self.lookups.addresses(name, owner, key, self.times.resolve).await?
            }
        };
        if found.is_empty() {
            return Err(Step::Resolve.failed(Why::NoAddress));
        }
        let permit = |address: &IpAddr| match reach {
            Reach::Anything => Some(*address),
            Reach::Permitted => self.permission.permit(*address),
            Reach::PermittedPlain => self.permission.permit_plain(*address),
        };
        let permitted: Vec<_> = found.iter().filter_map(permit).collect();
        if permitted.is_empty() {
            let with_tls = found.iter().any(|address| self.permission.permit(*address).is_some());
            let why = if with_tls { Why::PlainForbidden } else { Why::Forbidden };
            return Err(Step::Connect.failed(why));
        }
        Ok(order(permitted, port))
    }
}

/// The addresses that a connection may lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// All of them: the operator chose where it goes.
    Anything,
    /// The public internet and allowed networks: a tenant chose, and there is TLS.
    Permitted,
    /// Networks that were allowed for this: a tenant chose, and there is no TLS.
    PermittedPlain,
}

impl Reach {
    fn of(origin: &Origin) -> Self {
        match origin.owner() {
            Owner::Operator => Self::Anything,
            Owner::Tenant if origin.tls() => Self::Permitted,
            Owner::Tenant => Self::PermittedPlain,
        }
    }
}

pub(crate) async fn within<T>(
    step: Step,
    limit: Duration,
    work: impl Future<Output = Result<T, Unreachable>>,
) -> Result<T, Unreachable> {
    timeout(limit, work).await.unwrap_or_else(|_| Err(step.failed(Why::Late(limit))))
}
