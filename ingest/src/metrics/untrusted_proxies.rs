//! Counts peers that claim to speak for another client and are not trusted: a proxy that is missing
//! from `--trusted-proxies`, or a client that pretends to be a proxy.

/// The way in which a peer names a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProxyClaim {
    /// With a header of the PROXY protocol. The connection is closed.
    Protocol,
    /// With `X-Forwarded-For`. The request is answered, and the header ignored.
    Forwarded,
}

impl ProxyClaim {
    pub(super) const ALL: [Self; 2] = [Self::Protocol, Self::Forwarded];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Protocol => "proxy_protocol",
            Self::Forwarded => "x_forwarded_for",
        }
    }
}
