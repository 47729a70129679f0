//! Clients of MQTT brokers that `ingest` refuses when a broker asks, and callers that are refused in a
//! broker's place. EMQX and RMQTT get a refusal as a 200, so no status tells of it.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};

use crate::route::Broker;

/// The reason why a broker is answered with a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalReason {
    /// No secret is set for brokers.
    Off,
    /// The caller does not have it.
    Secret,
    /// The question cannot be read.
    Question,
    /// The token, or the password of the workers, is wrong.
    Credentials,
    /// The token has expired.
    Expired,
    /// The app of the token was removed.
    AppRemoved,
    /// The device of the token was removed.
    DeviceRemoved,
    /// The client may not do that.
    Forbidden,
    /// The index is unavailable.
    Unavailable,
}

impl RefusalReason {
    const ALL: [Self; 9] = [
        Self::Off,
        Self::Secret,
        Self::Question,
        Self::Credentials,
        Self::Expired,
        Self::AppRemoved,
        Self::DeviceRemoved,
        Self::Forbidden,
        Self::Unavailable,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Secret => "secret",
            Self::Question => "question",
            Self::Credentials => "credentials",
            Self::Expired => "expired",
            Self::AppRemoved => "app_removed",
            Self::DeviceRemoved => "device_removed",
            Self::Forbidden => "forbidden",
            Self::Unavailable => "unavailable",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Refusal {
    broker: &'static str,
    reason: &'static str,
}

/// The refusals, by broker and reason.
#[derive(Debug)]
pub(crate) struct BrokerRefusals {
    pub(super) family: Family<Refusal, Counter>,
}

/// All begin at 0: an increase from nothing is none for Prometheus.
impl Default for BrokerRefusals {
    fn default() -> Self {
        let family = Family::<Refusal, Counter>::default();
        for broker in Broker::ALL {
            for reason in RefusalReason::ALL {
                drop(family.get_or_create(&label(broker, reason)));
            }
        }
        Self { family }
    }
}

impl BrokerRefusals {
    pub(crate) fn count(&self, broker: Broker, reason: RefusalReason) {
        self.family.get_or_create(&label(broker, reason)).inc();
    }
}

fn label(broker: Broker, reason: RefusalReason) -> Refusal {
    Refusal { broker: broker.name(), reason: reason.name() }
}
