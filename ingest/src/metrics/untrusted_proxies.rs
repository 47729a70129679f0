//! Counts peers that claim to speak for another client and are not trusted: a proxy that is missing
//! from `--trusted-proxies`, or a client that pretends to be a proxy.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};

/// The way in which a peer names a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProxyClaim {
    /// With a header of the PROXY protocol. The connection is closed.
    Protocol,
    /// With `X-Forwarded-For`. The request is answered, and the header ignored.
    Forwarded,
}

impl ProxyClaim {
    const ALL: [Self; 2] = [Self::Protocol, Self::Forwarded];

    const fn name(self) -> &'static str {
        match self {
            Self::Protocol => "proxy_protocol",
            Self::Forwarded => "x_forwarded_for",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Claim {
    claim: &'static str,
}

/// The claims, by how they are made.
#[derive(Debug)]
pub(super) struct UntrustedProxies {
    pub(super) family: Family<Claim, Counter>,
}

/// All begin at 0: an increase from nothing is none for Prometheus.
impl Default for UntrustedProxies {
    fn default() -> Self {
        let family = Family::<Claim, Counter>::default();
        for claim in ProxyClaim::ALL {
            drop(family.get_or_create(&Claim { claim: claim.name() }));
        }
        Self { family }
    }
}

impl UntrustedProxies {
    pub(super) fn count(&self, claim: ProxyClaim) {
        self.family.get_or_create(&Claim { claim: claim.name() }).inc();
    }
}
