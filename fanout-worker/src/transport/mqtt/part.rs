//! The part of a delivery that one connection takes.

use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use push_shared::{device::Target, ids::AppId, time::UnixMillis};
use tokio::{sync::oneshot, time::Instant};

use crate::transport::Outcome;

/// One message to some devices, to be answered once.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) topics: Vec<ByteString>,
    pub(super) payload: Bytes,
    pub(super) lifetime: Lifetime,
    /// Takes one answer for each topic, `None` for what stayed undecided. Dropped unanswered
    /// means that nothing was decided.
    pub(super) reply: oneshot::Sender<Vec<Option<Outcome>>>,
}

/// The topic that a device listens to.
pub(super) fn topic(app: &AppId, target: &Target) -> ByteString {
    let (app, client) = (app.as_str(), target.client_id.as_str());
    let mut topic = String::with_capacity("push//".len() + app.len() + client.len());
    topic.push_str("push/");
    topic.push_str(app);
    topic.push('/');
    topic.push_str(client);
    topic.into()
}

/// How long a message may still be sent and kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lifetime {
    /// To who is connected now. It has no end of its own: the caller bounds it by not waiting.
    NowOrNever,
    /// Until this instant.
    Until(Instant),
    /// Further away than the clock reaches.
    Unbounded,
}

impl Lifetime {
    /// The lifetime of a message, by the wall clock that the caller passed at instant `at`.
    pub(super) fn of(expires_at: UnixMillis, now: UnixMillis, at: Instant) -> Self {
        match expires_at.since(now) {
            Duration::ZERO => Self::NowOrNever,
            left => at.checked_add(left).map_or(Self::Unbounded, Self::Until),
        }
    }

    /// The MQTT message expiry interval in seconds, or `None` once it is over.
    ///
    /// MQTT counts whole seconds, so they are rounded down: a broker must not hand a message
    /// over too late. Below one second it is still one, the least that every broker obeys: 0 is
    /// legal in MQTT 5, but Mosquitto reads it as "never expires". So the overrun at a broker is
    /// less than one second; for "now or never" that is how long a broker may keep the message
    /// for a device that is away.
    pub(super) fn expiry_interval(self, at: Instant) -> Option<u32> {
        match self {
            Self::NowOrNever => Some(1),
            Self::Unbounded => Some(u32::MAX),
            Self::Until(end) => {
                let left = end.checked_duration_since(at).filter(|left| !left.is_zero())?;
                Some(u32::try_from(left.as_secs()).unwrap_or(u32::MAX).max(1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(expires: u64, now: u64, passed: Duration) -> Option<u32> {
        let at = Instant::now();
        Lifetime::of(UnixMillis(expires), UnixMillis(now), at).expiry_interval(at + passed)
    }

    #[tokio::test]
    async fn the_expiry_interval_is_what_is_left_in_whole_seconds_but_never_zero() {
        assert_eq!(interval(10_999, 1_000, Duration::ZERO), Some(9));
        assert_eq!(interval(10_999, 1_000, Duration::from_secs(8)), Some(1));
        assert_eq!(interval(1_001, 1_000, Duration::ZERO), Some(1));
    }

    #[tokio::test]
    async fn what_expires_while_it_waits_is_not_sent_any_more() {
        assert_eq!(interval(2_000, 1_000, Duration::from_secs(1)), None);
        assert_eq!(interval(2_000, 1_000, Duration::from_secs(9)), None);
    }

    #[tokio::test]
    async fn now_or_never_is_kept_for_the_shortest_time_that_brokers_obey() {
        assert_eq!(interval(1_000, 1_000, Duration::ZERO), Some(1));
        assert_eq!(interval(1_000, 2_000, Duration::ZERO), Some(1));
    }

    #[tokio::test]
    async fn a_lifetime_of_millennia_is_capped_not_wrapped() {
        let millennia = UnixMillis::MAX.0;
        assert_eq!(interval(millennia, 0, Duration::ZERO), Some(u32::MAX));
    }

    #[test]
    fn a_device_has_a_topic_of_its_own() {
        let target = Target {
            client_id: "c:1".parse().unwrap(),
            transport: push_shared::device::TransportKind::Mqtt,
            token: None,
        };
        assert_eq!(topic(&"my.app".parse().unwrap(), &target), "push/my.app/c:1");
    }
}
