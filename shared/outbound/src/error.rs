//! The reasons why no connection came about. Every text may be shown to a tenant: it has no
//! credentials, and does not say which address was refused.

use std::{io, time::Duration};

use push_tls::failure::TlsFailure;

/// No connection came about, so nothing was sent.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}: {why}", .step.text())]
pub struct Unreachable {
    /// The step that failed.
    pub step: Step,
    /// The reason.
    pub why: Why,
}

/// The steps to a connection, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Finding the addresses of the host.
    Resolve,
    /// Connecting to one of them.
    Connect,
    /// Asking the proxy for a tunnel.
    Proxy,
    /// The TLS handshake.
    Tls,
    /// The beginning of HTTP.
    Http,
}

/// What went wrong in a step.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// The host has no address, as far as the resolver knows.
    #[error("the host has no address")]
    NoAddress,
    /// Each address of the host is one that may not be reached.
    #[error("it leads to an address that may not be reached")]
    Forbidden,
    /// The URL begins with `http:`, and no address of the host is in a network that is allowed without TLS.
    #[error("only networks that the operator allows may be reached without TLS: it must be https:")]
    PlainForbidden,
    /// The step took too long.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// The network or the peer refused or cut the connection.
    #[error("{}", io_text(*.0))]
    Io(io::ErrorKind),
    /// The proxy answered with this status instead of a tunnel.
    #[error("the proxy answered with status {0}")]
    ProxyStatus(u16),
    /// TLS failed.
    #[error("{0}")]
    Tls(TlsFailure),
    /// The machine's certificate authorities cannot be used.
    #[error("this service has no certificate authorities to check servers with")]
    NoAuthorities,
    /// The server does not speak the protocol that was agreed on.
    #[error("the server does not speak HTTP as agreed")]
    Protocol,
    /// The server accepts connections and ends them.
    #[error("the server ends connections soon after they begin")]
    Ended,
    /// All connections that this process may have are in use.
    #[error("this service has too many connections at the moment")]
    TooMany,
}

impl Unreachable {
    /// Returns true if the rules for addresses forbid it. Another try leads to the same end, until the
    /// operator's settings or the host's addresses change.
    pub fn is_forbidden(&self) -> bool {
        matches!(self.why, Why::Forbidden | Why::PlainForbidden)
    }
}

impl Step {
    fn text(self) -> &'static str {
        match self {
            Self::Resolve => "the host cannot be resolved",
            Self::Connect => "the host cannot be reached",
            Self::Proxy => "the proxy gives no connection to the host",
            Self::Tls => "there is no TLS connection with the host",
            Self::Http => "there is no HTTP connection with the host",
        }
    }

    pub(crate) fn failed(self, why: Why) -> Unreachable {
        Unreachable { step: self, why }
    }
}

impl Why {
    pub(crate) fn io(error: &io::Error) -> Self {
        Self::Io(error.kind())
    }

    pub(crate) fn tls(error: &io::Error) -> Self {
        TlsFailure::of(error).map_or(Self::Io(error.kind()), Self::Tls)
    }
}

fn io_text(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::ConnectionRefused => "the connection was refused",
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => "the connection was closed",
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            "there is no route to the host"
        }
        io::ErrorKind::TimedOut => "the network gave up waiting for the host",
        _ => "the connection failed",
    }
}
