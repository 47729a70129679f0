//! The worker's connections: each PUBLISH is kept for its device and acknowledged with what became
//! of it.
//!
//! | reason | when | outcome at the worker |
//! |---|---|---|
//! | success | it is kept, or goes to the device | sent |
//! | no matching subscribers | the device has no session, does not subscribe, or is of an earlier app of the name | failed, `no_subscriber` |
//! | quota exceeded | there is no memory for it now | tried again, as for a busy broker |

use std::{convert::Infallible, num::NonZeroU32, time::Duration};

use push_model::mqtt::APP_GENERATION;
use rmqtt_codec::{
    types::{Publish, QoS},
    v5::{DisconnectReasonCode, PublishAckReason, PublishProperties, SubscribeAckReason},
};
use tokio::time::Instant;

use super::{conversation::Role, end::End, output::Output};
use crate::broker::{
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
                let reason = keep(self.sessions, &publish);
                if let Some(id) = publish.packet_id.filter(|_| publish.qos == QoS::AtLeastOnce) {
                    wire.acknowledge(id, reason, &mut output.bytes)?;
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

fn keep(sessions: &Sessions, publish: &Publish) -> PublishAckReason {
    let now = Instant::now();
    let interval = publish.properties.as_ref().and_then(|has| has.message_expiry_interval);
    let lifetime = interval.map(|seconds: NonZeroU32| Duration::from_secs(seconds.get().into()));
    let expires_at = lifetime.and_then(|lifetime| now.checked_add(lifetime));
    let generation = publish.properties.as_ref().and_then(generation);
    match sessions.publish(&publish.topic, generation, &publish.payload, expires_at, now) {
        Ok(()) => PublishAckReason::Success,
        Err(NotTaken::NoSubscriber) => PublishAckReason::NoMatchingSubscribers,
        Err(NotTaken::NoRoom) => PublishAckReason::QuotaExceeded,
    }
}

/// The generation of the message's app, if the worker says it.
fn generation(properties: &PublishProperties) -> Option<u64> {
    let mut named = properties.user_properties.iter().filter(|(name, _)| name == APP_GENERATION);
    named.next()?.1.parse().ok()
}
