//! Puts back messages that a policy made the server drop.
//!
//! A dropped message stays here for a while, unacknowledged, before it goes to its queue again, so
//! that it does not run in circles while the policy is in force. Neither a length nor a time to live
//! drops a message that a consumer holds. If it waited in a queue, the policy would drop it again,
//! because it often applies to all queues.

use std::time::{Duration, Instant};

use lapin::{message::Delivery, options::BasicAckOptions, types::FieldTable};

use super::{Findings, PERSISTENT, PolicyKey, Session};
use crate::amqp::{
    dead_letters::dropped_from,
    error::{AmqpError, within},
};

/// The least time for which a dropped message is held.
const HELD: Duration = Duration::from_secs(5);

impl Session {
    /// Notes what dropped this message, and holds it.
    pub(super) fn hold(&mut self, dropped: Delivery, findings: &mut Findings) {
        let now = Instant::now();
        let headers = dropped.properties.headers().clone().unwrap_or_default();
        let (queue, reason) = dropped_from(&headers);
        let key = match reason.as_str() {
            "expired" => Some(PolicyKey::MessageTtl),
            "maxlen" => Some(PolicyKey::MaxLength),
            _ => None,
        };
        if let Some(key) = key {
            findings.note(key, queue, now);
        }
        self.held.push_back((now, dropped));
    }

    /// Publishes messages again that were held for long enough.
    pub(super) async fn restore(&mut self) -> Result<(), AmqpError> {
        while self.held.front().is_some_and(|(since, _)| since.elapsed() >= HELD) {
            let Some((_, dropped)) = self.held.pop_front() else { break };
            match self.restore_one(&dropped).await {
                Ok(()) => {
                    within(self.bound(), dropped.ack(BasicAckOptions::default())).await?;
                }
                // Its queue has no room for now.
                Err(AmqpError::Nacked) => {
                    self.held.push_back((Instant::now(), dropped));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn restore_one(&self, dropped: &Delivery) -> Result<(), AmqpError> {
        let names = &self.dialer.names;
        let headers = dropped.properties.headers().clone().unwrap_or_default();
        let (queue, _) = dropped_from(&headers);
        let to = match names.lane_of(&queue) {
            Some(lane) => names.lane_address(lane),
            None => names.dead_letter_address(),
        };
        let mut kept = FieldTable::default();
        for (name, value) in headers.inner() {
            let is_of_the_server =
                name.as_str().contains("death") || name.as_str() == "x-delivery-count";
            if !is_of_the_server {
                kept.insert(name.clone(), value.clone());
            }
        }
        let properties = dropped.properties.clone().with_headers(kept);
        self.publish(to, &dropped.data, properties.with_delivery_mode(PERSISTENT)).await
    }
}
