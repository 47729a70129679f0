//! The addresses of programs and clients.

pub mod failures;
pub mod gcra;
pub mod proxy_protocol;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use anyhow::Context as _;
use tokio::net::TcpListener;

/// The bits of an IPv6 address that name its network: an interface has the other 64 for itself
/// (RFC 4291 section 2.5.1), and a provider gives a customer one such network at least.
const NETWORK_BITS: u128 = u128::MAX << 64;

/// Listens on the address of a setting.
///
/// # Errors
/// If the address is taken, or not one of this machine.
pub async fn bind(address: SocketAddr, flag: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}: choose another address with {flag}"))
}

/// Returns the unit to which limits per address apply: an IPv4 address, or the network of an IPv6
/// address (its first 64 bits, the rest zero), because a single host has all addresses of one. An
/// IPv4 address that was mapped into IPv6 counts as IPv4.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & NETWORK_BITS).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_is_one_address_and_a_mapped_ipv4_address_is_that_of_ipv4() {
        let network = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(network("2001:db8:1:2::1"), network("2001:db8:1:2:ffff::9"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
        assert_eq!(network("::ffff:192.0.2.7"), network("192.0.2.7"));
        assert_ne!(network("192.0.2.7"), network("192.0.2.8"));
    }
}
