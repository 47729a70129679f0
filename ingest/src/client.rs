//! The unit to which limits per address apply.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What counts as one address: an IPv4 address, or the 64 bits of an IPv6 address that name its
/// network, because a single host has all addresses of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client(IpAddr);

impl Client {
    /// The one that comes before all others.
    pub(crate) const LEAST: Self = Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

    pub(crate) fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_is_one_address_and_a_mapped_ipv4_address_is_that_of_ipv4() {
        let client = |text: &str| Client::of(text.parse().unwrap());
        assert_eq!(client("2001:db8:1:2::1"), client("2001:db8:1:2:ffff::9"));
        assert_ne!(client("2001:db8:1:2::1"), client("2001:db8:1:3::1"));
        assert_eq!(client("::ffff:192.0.2.7"), client("192.0.2.7"));
        assert_ne!(client("192.0.2.7"), client("192.0.2.8"));
    }
}
