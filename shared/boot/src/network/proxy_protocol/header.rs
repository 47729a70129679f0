//! The header of the PROXY protocol, versions 1 and 2: from its bytes to the client's address.
//!
//! Pure functions over bytes that a trusted proxy sent. They are strict nevertheless: a header that is
//! read in another way than it was meant gives one client the address of another.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The first bytes of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The signature, version and command, family, and length.
const V2_BEGIN: usize = 16;
/// The largest header of version 2, in bytes. A proxy may add values (type, length, value) of its own,
/// which are skipped; with a client certificate they have some hundred bytes.
const MAX_V2: usize = 4096;
/// The first bytes of version 1.
const V1_BEGIN: &[u8] = b"PROXY ";
/// The longest line of version 1, with its end.
const MAX_V1: usize = 107;
/// So many bytes are always enough to know the length of a header.
pub(super) const ENOUGH: usize = MAX_V1;

/// The meaning of the first bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begin {
    /// No header. The connection belongs to the address that it comes from.
    NoHeader,
    /// Perhaps the beginning of a header.
    Unclear,
    /// A header of this many bytes.
    Header(usize),
}

/// A header that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a PROXY header that cannot be read: {0}")]
pub struct Invalid(&'static str);

/// Returns true if the first bytes of a connection are those of a header.
pub fn is_header(bytes: &[u8]) -> bool {
    bytes.starts_with(SIGNATURE) || bytes.starts_with(V1_BEGIN)
}

/// Reads the first bytes of a connection.
///
/// # Errors
/// If they are the beginning of a header that cannot be read.
pub(super) fn begin(bytes: &[u8]) -> Result<Begin, Invalid> {
    let begins = |with: &[u8]| bytes.starts_with(with) || with.starts_with(bytes);
    if begins(SIGNATURE) {
        let Some([high, low]) = bytes.get(V2_BEGIN - 2..V2_BEGIN) else {
            return Ok(Begin::Unclear);
        };
        let length = V2_BEGIN + usize::from(u16::from_be_bytes([*high, *low]));
        return if length <= MAX_V2 {
            Ok(Begin::Header(length))
        } else {
            Err(Invalid("its length"))
        };
    }
    if begins(V1_BEGIN) {
        let line = &bytes[..bytes.len().min(MAX_V1)];
        return match line.windows(2).position(|two| two == b"\r\n") {
            Some(end) => Ok(Begin::Header(end + 2)),
            None if line.len() < MAX_V1 => Ok(Begin::Unclear),
            None => Err(Invalid("its line has no end")),
        };
    }
    Ok(Begin::NoHeader)
}

/// The address of the client that a whole header names. None if it names none: the proxy checks that the
/// service lives, or does not know.
///
/// # Errors
/// If the header cannot be read.
pub(super) fn read(header: &[u8]) -> Result<Option<SocketAddr>, Invalid> {
    if header.starts_with(SIGNATURE) { read_v2(header) } else { read_v1(header) }
}

fn read_v2(header: &[u8]) -> Result<Option<SocketAddr>, Invalid> {
    let (Some(&command), Some(&family)) = (header.get(12), header.get(13)) else {
        return Err(Invalid("its end"));
    };
    match command {
        // LOCAL: the connection is the proxy's own.
        0x20 => return Ok(None),
        0x21 => {}
        _ => return Err(Invalid("its version or command")),
    }
    let rest = header.get(V2_BEGIN..).unwrap_or_default();
    // Addresses of source and destination, then their ports.
    match family {
        0x00 => Ok(None),
        0x11 => match *rest {
            [a, b, c, d, _, _, _, _, high, low, _, _, ..] => {
                Ok(Some(address(Ipv4Addr::new(a, b, c, d), [high, low])))
            }
            _ => Err(Invalid("its addresses")),
        },
        0x21 => match (rest.first_chunk::<16>(), rest.get(32..36)) {
            (Some(source), Some([high, low, ..])) => {
                Ok(Some(address(Ipv6Addr::from(*source), [*high, *low])))
            }
            _ => Err(Invalid("its addresses")),
        },
        _ => Err(Invalid("its address family")),
    }
}

fn address(ip: impl Into<IpAddr>, port: [u8; 2]) -> SocketAddr {
    SocketAddr::new(ip.into().to_canonical(), u16::from_be_bytes(port))
}

/// `PROXY TCP4 192.0.2.1 192.0.2.2 50000 443`, and its end of line.
fn read_v1(header: &[u8]) -> Result<Option<SocketAddr>, Invalid> {
    let line = header.strip_suffix(b"\r\n").and_then(|line| str::from_utf8(line).ok());
    let line = line.ok_or(Invalid("its line"))?;
    let words: Vec<&str> = line.split(' ').collect();
    match *words {
        ["PROXY", "UNKNOWN", ..] => Ok(None),
        ["PROXY", family @ ("TCP4" | "TCP6"), source, destination, port, to_port] => {
            let ip = |text: &str| match family {
                "TCP4" => text.parse::<Ipv4Addr>().map(IpAddr::from).ok(),
                _ => text.parse::<Ipv6Addr>().map(IpAddr::from).ok(),
            };
            let (Some(source), Some(_)) = (ip(source), ip(destination)) else {
                return Err(Invalid("its addresses"));
            };
            match (port.parse(), to_port.parse::<u16>()) {
                (Ok(port), Ok(_)) => Ok(Some(SocketAddr::new(source.to_canonical(), port))),
                _ => Err(Invalid("its ports")),
            }
        }
        _ => Err(Invalid("its words")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, rest].concat()
    }

    /// The client of the header that these bytes begin with, which has to end before `behind`.
    fn client(header: &[u8]) -> Result<Option<SocketAddr>, Invalid> {
        let bytes = [header, b"\x10\x20behind"].concat();
        assert_eq!(begin(&bytes), Ok(Begin::Header(header.len())));
        for shorter in 0..V2_BEGIN.min(header.len() - 1) {
            assert_eq!(begin(&bytes[..shorter]), Ok(Begin::Unclear), "{shorter}");
        }
        read(header)
    }

    #[test]
    fn a_client_is_read_in_both_versions_and_families() {
        let v4 = [192, 0, 2, 1, 10, 0, 0, 1, 0xC3, 0x50, 1, 0xBB];
        let four = Ok(Some("192.0.2.1:50000".parse().unwrap()));
        assert_eq!(client(&v2(0x21, 0x11, &v4)), four);
        let with_values = [&v4[..], &[0x04, 0, 3, 1, 2, 3]].concat();
        assert_eq!(client(&v2(0x21, 0x11, &with_values)), four, "further values are skipped");
        assert_eq!(client(b"PROXY TCP4 192.0.2.1 10.0.0.1 50000 443\r\n"), four);
        let source: Ipv6Addr = "2001:db8::1".parse().unwrap();
        let v6 = [&source.octets()[..], &[0; 16], &[0xC3, 0x50, 1, 0xBB]].concat();
        let six = Ok(Some("[2001:db8::1]:50000".parse().unwrap()));
        assert_eq!(client(&v2(0x21, 0x21, &v6)), six);
        assert_eq!(client(b"PROXY TCP6 2001:db8::1 ::1 50000 443\r\n"), six);
        let mapped = [&"::ffff:192.0.2.1".parse::<Ipv6Addr>().unwrap().octets()[..], &v6[16..]];
        assert_eq!(client(&v2(0x21, 0x21, &mapped.concat())), four, "the limits are those of IPv4");
    }

    #[test]
    fn a_proxy_that_names_no_client_stands_for_itself() {
        for header in [&v2(0x20, 0x00, b""), &v2(0x20, 0x11, &[0; 12]), &v2(0x21, 0x00, b"")[..]] {
            assert_eq!(client(header), Ok(None), "{header:?}");
        }
        assert_eq!(client(b"PROXY UNKNOWN\r\n"), Ok(None));
        assert_eq!(client(b"PROXY UNKNOWN ffff::1 ffff::1 65535 65535\r\n"), Ok(None));
    }

    #[test]
    fn what_is_no_header_is_left_alone_and_a_broken_one_is_refused() {
        for bytes in
            [&b"POST /v1"[..], b"PRI * HTTP/2.0", b"\x16\x03\x01", b"\x10\x20", b"\r\nGET /"]
        {
            assert_eq!(begin(bytes), Ok(Begin::NoHeader), "{bytes:?}");
            assert!(!is_header(bytes));
        }
        assert!(begin(&v2(0x21, 0x11, &[0; MAX_V2])).is_err());
        assert!(begin(&[b"PROXY ", &[b'x'; 200][..]].concat()).is_err());
        for header in [
            &v2(0x11, 0x11, &[0; 12]),
            &v2(0x22, 0x11, &[0; 12]),
            &v2(0x21, 0x12, &[0; 12]),
            &v2(0x21, 0x31, &[0; 216]),
            &v2(0x21, 0x11, &[0; 11]),
            &v2(0x21, 0x21, &[0; 35]),
            &b"PROXY TCP4 192.0.2.1 10.0.0.1 50000\r\n"[..],
            b"PROXY TCP4 2001:db8::1 ::1 50000 443\r\n",
            b"PROXY TCP4  192.0.2.1 10.0.0.1 50000 443\r\n",
            b"PROXY TCP4 192.0.2.1 10.0.0.1 70000 443\r\n",
            b"PROXY \r\n",
        ] {
            assert!(is_header(header) && client(header).is_err(), "{header:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            which in 0..3_usize,
        ) {
            let prefix: &[u8] = [&b""[..], SIGNATURE, V1_BEGIN][which];
            let bytes = [prefix, &bytes[..]].concat();
            if let Ok(Begin::Header(length)) = begin(&bytes) {
                let _ = read(&bytes[..length.min(bytes.len())]);
            }
        }
    }
}
