//! The addresses that may be reached on behalf of a tenant. Pure: it opens no socket.
//!
//! An endpoint, a webhook's URL or a token URI is chosen by a tenant, and must not lead into the
//! operator's network. So an address is refused unless it is one of the public internet, or of a
//! network that the operator allowed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The most networks that may be allowed: the list is walked for each address.
pub const ALLOWED_NETWORKS: usize = 64;

/// IPv4 networks that are not of the public internet (IANA's special-purpose registry), and public
/// ones that lead to a cloud's own services.
const REFUSED_V4: [Ipv4Net; 20] = [
    v4([0, 0, 0, 0], 8),        // this network, the unspecified address
    v4([10, 0, 0, 0], 8),       // private
    v4([100, 64, 0, 0], 10),    // shared, behind a provider's address translation
    v4([127, 0, 0, 0], 8),      // loopback
    v4([161, 26, 0, 0], 16),    // IBM Cloud's platform services, reachable from its machines only
    v4([166, 8, 0, 0], 14),     // IBM Cloud's private endpoints
    v4([168, 63, 129, 16], 32), // Azure's platform services, reachable from its machines only
    v4([169, 254, 0, 0], 16),   // link-local, the metadata of most clouds
    v4([172, 16, 0, 0], 12),    // private
    v4([192, 0, 0, 0], 24),     // protocol assignments
    v4([192, 0, 2, 0], 24),     // documentation
    v4([192, 31, 196, 0], 24),  // AS112, answered by the nearest name server
    v4([192, 52, 193, 0], 24),  // AMT, a tunnel's relay
    v4([192, 88, 99, 0], 24),   // relays of 6to4
    v4([192, 168, 0, 0], 16),   // private
    v4([192, 175, 48, 0], 24),  // AS112
    v4([198, 18, 0, 0], 15),    // benchmarking
    v4([198, 51, 100, 0], 24),  // documentation
    v4([203, 0, 113, 0], 24),   // documentation
    v4([224, 0, 0, 0], 3),      // multicast, reserved, broadcast
];

/// The part of IPv6 from which public addresses are given out. All others are refused: loopback,
/// link-local, unique-local, multicast, IPv4-mapped and -compatible, NAT64, discard, and what is not
/// assigned yet.
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0, 0], 3);

/// Networks in it that are not of the public internet, or that carry an IPv4 address.
const REFUSED_V6: [Ipv6Net; 5] = [
    v6([0x2001, 0, 0], 23), // Teredo, benchmarking, ORCHID and other assignments
    v6([0x2001, 0x0db8, 0], 32), // documentation
    v6([0x2002, 0, 0], 16), // 6to4
    v6([0x2620, 0x004f, 0x8000], 48), // AS112
    v6([0x3fff, 0, 0], 20), // documentation
];

const fn v4(octets: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]), prefix)
}

const fn v6(first: [u16; 3], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(first[0], first[1], first[2], 0, 0, 0, 0, 0), prefix)
}

/// The beginning of a network that may be reached without TLS too.
const PLAIN: &str = "http:";

/// Decides which addresses may be reached: those of the public internet, and of allowed networks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permission {
    allowed: Vec<Allowed>,
}

/// A network that the operator allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Allowed {
    network: IpNet,
    /// It may be reached without TLS too.
    plain: bool,
}

/// The setting `PUSH_OUTBOUND_ALLOW` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllowError {
    /// A part of it is neither an address nor a network.
    #[error(
        "{0:?} is not a network; write it as 10.1.0.0/16, or as {PLAIN}10.1.0.0/16 to allow URLs with {PLAIN} too, and several with commas"
    )]
    NotANetwork(String),
    /// There are too many.
    #[error("more than {ALLOWED_NETWORKS} networks are allowed; join some into larger ones")]
    TooMany,
}

impl Permission {
    /// Reads networks from text, separated by commas. A lone address is a network of one. Without TLS, only
    /// networks are reached that are written as `http:NETWORK`.
    ///
    /// # Errors
    /// Says which part is not a network, or that there are more than [`ALLOWED_NETWORKS`].
    pub fn parse(text: &str) -> Result<Self, AllowError> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let allowed = parts.map(allowed).collect::<Result<Vec<_>, _>>()?;
        if allowed.len() > ALLOWED_NETWORKS {
            return Err(AllowError::TooMany);
        }
        Ok(Self { allowed })
    }

    /// Returns the address to connect to if it may be reached: an IPv4 address that is written as
    /// IPv6 (`::ffff:a.b.c.d`) is judged and used as the IPv4 address that it is.
    pub fn permit(&self, address: IpAddr) -> Option<IpAddr> {
        let address = address.to_canonical();
        (self.is_allowed(address, |_| true) || is_public(address)).then_some(address)
    }

    /// Returns the address to connect to if it may be reached without TLS: only one in a network that was
    /// allowed with `http:`.
    pub fn permit_plain(&self, address: IpAddr) -> Option<IpAddr> {
        let address = address.to_canonical();
        self.is_allowed(address, |allowed| allowed.plain).then_some(address)
    }

    fn is_allowed(&self, address: IpAddr, suits: fn(&Allowed) -> bool) -> bool {
        let suitable = self.allowed.iter().filter(|allowed| suits(allowed));
        suitable.map(|allowed| allowed.network).any(|network| network.contains(&address))
    }
}

/// Returns true for an address of the public internet.
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => !REFUSED_V4.iter().any(|network| network.contains(&address)),
        IpAddr::V6(address) => {
            GLOBAL_V6.contains(&address)
                && !REFUSED_V6.iter().any(|network| network.contains(&address))
        }
    }
}

fn allowed(text: &str) -> Result<Allowed, AllowError> {
    let of_plain = text.strip_prefix(PLAIN);
    let (bare, plain) = (of_plain.unwrap_or(text), of_plain.is_some());
    let network = bare.parse::<IpNet>().ok();
    let network = network.or_else(|| bare.parse::<IpAddr>().ok().map(IpNet::from));
    let network = network.ok_or_else(|| AllowError::NotANetwork(text.to_owned()))?.trunc();
    Ok(Allowed { network, plain })
}
