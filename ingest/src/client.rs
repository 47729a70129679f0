//! The senders of requests, and the unit to which limits per address apply.

use std::net::IpAddr;

use push_boot::{network::network_of, proxy_protocol::TrustedProxies};

/// One address, for the limits ([`network_of`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Client(IpAddr);

impl Client {
    pub(crate) fn of(address: IpAddr) -> Self {
        Self(network_of(address))
    }
}

/// The other end of a connection: a client, or a proxy that names its client with each request.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    address: IpAddr,
    proxies: Option<TrustedProxies>,
}

/// The client that sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(crate) address: IpAddr,
    /// Returns true if the request names another client, and the peer is not trusted to.
    pub(crate) is_claim_ignored: bool,
}

impl Peer {
    pub(crate) fn new(address: IpAddr, proxies: &TrustedProxies) -> Self {
        let proxies = proxies.contains(address).then(|| proxies.clone());
        Self { address, proxies }
    }

    /// A peer that is no trusted proxy.
    #[cfg(test)]
    pub(crate) const fn client(address: IpAddr) -> Self {
        Self { address, proxies: None }
    }

    pub(crate) const fn address(&self) -> IpAddr {
        self.address
    }

    /// The client of a request without `X-Forwarded-For`.
    pub(crate) const fn itself(&self) -> Sender {
        Sender { address: self.address, is_claim_ignored: false }
    }

    /// The client of a request with these lines of `X-Forwarded-For`.
    pub(crate) fn of_forwarded<'a>(
        &self,
        lines: impl DoubleEndedIterator<Item = &'a [u8]>,
    ) -> Sender {
        match &self.proxies {
            None => Sender { address: self.address, is_claim_ignored: true },
            Some(proxies) => {
                Sender { address: proxies.forwarded(self.address, lines), is_claim_ignored: false }
            }
        }
    }
}
