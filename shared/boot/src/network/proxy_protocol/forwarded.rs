//! `X-Forwarded-For`: each proxy adds the address that it was asked from at the end. Entries further left
//! were written by others, so they count only as far as those are trusted.

use std::net::{IpAddr, SocketAddr};

use super::TrustedProxies;

impl TrustedProxies {
    /// The client of a request that the trusted proxy `peer` passed on with these header lines: the
    /// rightmost address that is not a trusted proxy's. A value that is no address ends the search.
    pub fn forwarded<'a>(
        &self,
        peer: IpAddr,
        lines: impl DoubleEndedIterator<Item = &'a [u8]>,
    ) -> IpAddr {
        let mut client = peer;
        for value in lines.rev().flat_map(|line| line.rsplit(|byte| *byte == b',')) {
            let Some(address) = address(value) else { break };
            client = address;
            if !self.contains(address) {
                break;
            }
        }
        client
    }
}

/// An address, with a port as some proxies write it.
fn address(value: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(value.trim_ascii()).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip()));
    address.ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(lines: &[&str]) -> String {
        let trusted = TrustedProxies::parse("10.0.0.0/8,2001:db8::/32").unwrap();
        let lines = lines.iter().map(|line| line.as_bytes());
        trusted.forwarded("10.0.0.1".parse().unwrap(), lines).to_string()
    }

    #[test]
    fn the_client_is_the_rightmost_address_that_is_no_trusted_proxys() {
        for (lines, expected) in [
            (&["192.0.2.1"][..], "192.0.2.1"),
            (&["198.51.100.9, 192.0.2.1"], "192.0.2.1"),
            (&["198.51.100.9,192.0.2.1 , 10.2.2.2,2001:db8::7"], "192.0.2.1"),
            (&["198.51.100.9", "192.0.2.1", "10.2.2.2"], "192.0.2.1"),
            (&["192.0.2.1:4711"], "192.0.2.1"),
            (&["[2001:db9::1]:4711"], "2001:db9::1"),
            (&["[2001:db9::1]"], "2001:db9::1"),
            (&["::ffff:192.0.2.1"], "192.0.2.1"),
            (&["10.3.3.3, 10.2.2.2"], "10.3.3.3"),
            (&["192.0.2.1, unknown, 10.2.2.2"], "10.2.2.2"),
            (&["192.0.2.1, "], "10.0.0.1"),
            (&[], "10.0.0.1"),
        ] {
            assert_eq!(client(lines), expected, "{lines:?}");
        }
    }
}
