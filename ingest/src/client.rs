//! The unit to which limits per address apply.

use std::net::{IpAddr, Ipv4Addr};

use push_service::network::network_of;

/// What counts as one address ([`network_of`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client(IpAddr);

impl Client {
    /// The one that comes before all others.
    pub(crate) const LEAST: Self = Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

    pub(crate) fn of(address: IpAddr) -> Self {
        Self(network_of(address))
    }
}
