//! Connections of workers: each PUBLISH is kept for its device and acknowledged with its outcome.
//!
//! | reason | when | outcome at the worker |
//! |---|---|---|
//! | success | the message is kept or sent to the device | sent |
//! | no matching subscribers | the device has no session or no subscription, or the session belongs to another registration of the client id | failed, `no_subscriber` |
//! | quota exceeded | no memory is free now | tried again, as for a busy broker |
//! | quota exceeded, with [`QUEUE_FULL`] | the queue of the absent device is full | failed, `queue_full` |
//! | implementation specific error | the registration in the message cannot be read | tried again |

use std::{
    convert::Infallible,
    num::{NonZeroU32, ParseIntError},
    time::Duration,
};

use push_model::{
    mqtt::{QUEUE_FULL, REGISTRATION},
    registration::RegistrationEpoch,
};
use rmqtt_codec::{
    types::{Publish, QoS},
    v5::{DisconnectReasonCode, PublishAckReason, SubscribeAckReason},
};
use tokio::time::Instant;

use super::{conversation::Role, end::End, output::Output};
use crate::{
    clocks::{Clocks, Expiry},
    packets::{Packet, Wire},
    sessions::{NotTaken, Sessions},
};

/// A worker that has logged in.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    pub(super) sessions: &'a Sessions,
}

impl Role for Worker<'_> {
    const READ: usize = 64 * 1024;

    fn receive(&mut self, packet: Packet, wire: &mut Wire, output: &mut Output) -> Result<(), End> {
        match packet {
            Packet::Publish(publish) => {
                let (reason, text) = keep(self.sessions, &publish);
                if let Some(id) = publish.packet_id.filter(|_| publish.qos == QoS::AtLeastOnce) {
                    wire.acknowledge(id, reason, text, &mut output.bytes)?;
                }
            }
            Packet::Ping => wire.pong(&mut output.bytes)?,
            Packet::Subscribe { id, filters, .. } => {
                let refused = vec![SubscribeAckReason::NotAuthorized; filters.len()];
                wire.subscribed(id, refused, &mut output.bytes)?;
            }
            Packet::Disconnect { .. } => return Err(End::ByClient),
            _ => return Err(End::Reason(DisconnectReasonCode::ProtocolError)),
        }
        Ok(())
    }

    fn send(&mut self, _: &mut Wire, _: &mut Output) -> Result<(), End> {
        Ok(())
    }

    fn authorised_until(&self) -> Option<Instant> {
        None
    }

    async fn changed(&mut self) -> Result<(), End> {
        let never: Infallible = std::future::pending().await;
        match never {}
    }
}

/// Keeps a message. Returns the reason and text of the acknowledgement.
fn keep(sessions: &Sessions, publish: &Publish) -> (PublishAckReason, Option<&'static str>) {
    let now = Clocks::now();
    let interval = publish.properties.as_ref().and_then(|has| has.message_expiry_interval);
    let lifetime = interval.map(|seconds: NonZeroU32| Duration::from_secs(seconds.get().into()));
    let expiry = lifetime.and_then(|lifetime| Expiry::after(lifetime, now));
    let Ok(registration) = registration(publish) else {
        return (PublishAckReason::ImplementationSpecificError, None);
    };
    let kept = sessions.publish(&publish.topic, registration, &publish.payload, expiry, now);
    let reason = match kept {
        Ok(()) => PublishAckReason::Success,
        Err(NotTaken::NoSubscriber) => PublishAckReason::NoMatchingSubscribers,
        Err(NotTaken::NoRoom) => PublishAckReason::QuotaExceeded,
        Err(NotTaken::QueueFull) => return (PublishAckReason::QuotaExceeded, Some(QUEUE_FULL)),
    };
    (reason, None)
}

/// Returns the registration that a message names. Workers name it with each message; a message without it
/// goes to whichever device has the client id.
fn registration(publish: &Publish) -> Result<Option<RegistrationEpoch>, ParseIntError> {
    let mut properties = publish.properties.iter().flat_map(|has| &has.user_properties);
    let named = properties.find(|(name, _)| name == REGISTRATION);
    named.map(|(_, epoch)| epoch.parse()).transpose()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use push_credentials::DeviceIdentity;
    use push_model::time::UnixMillis;
    use rmqtt_codec::v5::PublishProperties;

    use super::*;
    use crate::sessions::SessionLimits;

    #[tokio::test]
    async fn a_message_reaches_only_the_registration_that_it_names() {
        let limits = SessionLimits { messages: 10, bytes: 1 << 20 };
        let sessions = Sessions::new(10, 10, 1 << 20, limits);
        let device = |client: &str, registration| DeviceIdentity {
            app: "a".parse().unwrap(),
            client: client.parse().unwrap(),
            generation: 0,
            registration: RegistrationEpoch(registration),
            expires_at: UnixMillis::MAX,
            kid: "key".into(),
        };
        let own = |device: DeviceIdentity| {
            let owner = sessions.own(&device, None, false, Duration::ZERO, Clocks::now()).unwrap();
            owner.subscribe(Some(QoS::AtLeastOnce));
            owner
        };
        let _owners = [own(device("first", 1)), own(device("later", 0x2f))];
        let publish = |client: &str, registration: Option<&str>| {
            let named = registration.map(|text| (REGISTRATION.into(), text.into()));
            let properties = PublishProperties {
                user_properties: named.into_iter().collect(),
                ..Default::default()
            };
            let publish = Publish {
                dup: false,
                retain: false,
                qos: QoS::AtLeastOnce,
                topic: format!("push/a/{client}").into(),
                packet_id: None,
                payload: Bytes::from_static(b"x"),
                properties: Some(properties),
            };
            keep(&sessions, &publish).0
        };
        let (success, none) = (PublishAckReason::Success, PublishAckReason::NoMatchingSubscribers);
        let (first, later) =
            (RegistrationEpoch(1).to_string(), RegistrationEpoch(0x2f).to_string());
        let both = |named: Option<&str>| (publish("first", named), publish("later", named));
        assert_eq!(both(Some(&first)), (success, none));
        assert_eq!(both(Some(&later)), (none, success));
        assert_eq!(both(None), (success, success));
        let unreadable = PublishAckReason::ImplementationSpecificError;
        assert_eq!(publish("later", Some("another")), unreadable);
    }
}
