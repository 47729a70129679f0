//! The origin of a request: where it goes, and who chose that.

use std::{fmt, net::IpAddr};

use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use url::Url;

/// The longest URL from which an origin is read, in bytes; browsers' endpoints have some hundred.
pub const URL_BYTES: usize = 4096;

/// The longest name in DNS, in bytes (RFC 1035, section 3.1, as text without the last dot).
const NAME_BYTES: usize = 253;

/// Scheme, host and port of a server, and who chose them. Requests to equal origins share
/// connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    owner: Owner,
    tls: bool,
    host: Host,
    port: u16,
}

/// Keeps requests to one origin on connections of their own: those with equal keys share them. APNs
/// wants the teams apart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PoolKey(pub String);

/// The one who chose where a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The operator, with a setting: any address may be reached, also without TLS.
    Operator,
    /// A tenant, or a device of a tenant: each address is checked before it is connected to.
    /// Without TLS, only addresses in networks that the operator allowed for it are reached.
    Tenant,
}

/// A host, in the one form that each spelling of it leads to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name in lower case, international names in their ASCII form, without a dot at its end.
    Name(String),
    /// An address, from any notation that URLs allow.
    Address(IpAddr),
}

/// The reasons why a URL names no server that requests may go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// It cannot be read.
    #[error("it is not a URL")]
    NotAUrl,
    /// It is very long.
    #[error("it is longer than {URL_BYTES} bytes")]
    TooLong,
    /// The scheme is another one.
    #[error("it must begin with https:// or http://")]
    NotHttp,
    /// It has a user name or a password.
    #[error("it must not contain a user name or a password")]
    UserInfo,
    /// The host is missing, or cannot exist.
    #[error("it has no host that requests can be sent to")]
    NoHost,
    /// The port is 0.
    #[error("it has a port that requests cannot be sent to")]
    NoPort,
}

impl Origin {
    /// Reads the origin from a URL; path and query are left to the caller.
    ///
    /// `http` means HTTP/2 with prior knowledge if the operator chose it, and HTTP/1.1 if a tenant did.
    ///
    /// # Errors
    /// Says why requests cannot go there.
    pub fn parse(url: &str, owner: Owner) -> Result<Self, OriginError> {
        if url.len() > URL_BYTES {
            return Err(OriginError::TooLong);
        }
        let url = Url::parse(url).map_err(|_| OriginError::NotAUrl)?;
        let tls = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(OriginError::NotHttp),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(OriginError::UserInfo);
        }
        let host = match url.host() {
            Some(url::Host::Domain(name)) => Host::Name(name_of(name)?),
            Some(url::Host::Ipv4(address)) => Host::Address(address.into()),
            Some(url::Host::Ipv6(address)) => Host::Address(IpAddr::from(address).to_canonical()),
            None => return Err(OriginError::NoHost),
        };
        match url.port_or_known_default() {
            Some(port) if port != 0 => Ok(Self { owner, tls, host, port }),
            _ => Err(OriginError::NoPort),
        }
    }

    /// The one who chose it.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Returns true if TLS is used.
    pub fn tls(&self) -> bool {
        self.tls
    }

    /// The host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URI of a request to this origin, with the path and the query of `uri`.
    pub(crate) fn uri(&self, authority: Authority, uri: &Uri) -> Option<Uri> {
        let path = uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(if self.tls { Scheme::HTTPS } else { Scheme::HTTP });
        parts.authority = Some(authority);
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).ok()
    }

    /// Host and port as a request names them, the usual port left out.
    pub(crate) fn authority(&self) -> Option<Authority> {
        let usual = if self.tls { 443 } else { 80 };
        let text = if self.port == usual {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        };
        text.parse().ok()
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

fn name_of(name: &str) -> Result<String, OriginError> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let label = |label: &str| !label.is_empty() && label.len() <= 63;
    let usable = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if !usable || name.len() > NAME_BYTES || !name.split('.').all(label) {
        return Err(OriginError::NoHost);
    }
    Ok(name.to_owned())
}
