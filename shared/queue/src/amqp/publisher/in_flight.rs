//! The publishes that wait for their confirms, and how confirms are interpreted.
//!
//! The client library attaches a message that was returned as unroutable to the confirm that comes
//! *next*, not to its own, which may follow later without it. So no confirm can be interpreted
//! alone: all that have arrived are resolved together. A return always arrives before the confirm
//! of the same message, so if the confirm of a returned message is among them, the confirm that
//! carries the return is as well.
//!
//! After a return the session ends: the returned message is answered as unroutable, and everything
//! else in flight as unknown.
//!
//! After a nack it ends as well. None of our queues has a limit that it could have reached, so a
//! nack means that its quorum queue had no leader for a moment. RabbitMQ 3.10 was seen to nack
//! everything on a channel that had met that moment for as long as the channel lived, although the
//! leader was back long before; another channel is served immediately.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use lapin::Confirmation;
use uuid::Uuid;

use super::request::PendingConfirm;
use crate::{QueueError, amqp::error::AmqpError};

/// The confirm of one publish, or the error in its place, with the message's id.
pub(super) type ConfirmResult = (Uuid, Result<Confirmation, lapin::Error>);

/// The publishes of one session that wait for their confirms.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    pending: HashMap<Uuid, (Instant, PendingConfirm)>,
    /// Messages that reached no queue.
    returned: HashSet<Uuid>,
    /// Since when the connection is blocked.
    blocked: Option<Instant>,
    /// When the connection was last unblocked.
    unblocked: Option<Instant>,
}

impl InFlight {
    /// Adds a publish under a unique id, which identifies the message when it is returned, and
    /// later among the dead letters.
    pub(super) fn insert(&mut self, pending: PendingConfirm) -> Uuid {
        let id = Uuid::now_v7();
        self.pending.insert(id, (Instant::now(), pending));
        id
    }

    /// Notes that the connection is blocked, if it was not yet.
    pub(super) fn block(&mut self) {
        self.blocked.get_or_insert_with(Instant::now);
    }

    /// Notes that the connection is not blocked any more: no confirm is late for the time before.
    /// Returns how long it was.
    pub(super) fn unblock(&mut self) -> Duration {
        let now = Instant::now();
        self.unblocked = Some(now);
        self.blocked.take().map_or(Duration::ZERO, |since| now - since)
    }

    /// Since when the server could have confirmed the oldest publish.
    pub(super) fn unconfirmed_since(&self) -> Option<Instant> {
        let oldest = self.pending.values().map(|(since, _)| *since).min()?;
        Some(self.unblocked.map_or(oldest, |unblocked| unblocked.max(oldest)))
    }

    /// Answers the publishes whose confirms have arrived, unless a message was returned.
    ///
    /// # Errors
    /// Why the session has to end.
    pub(super) fn resolve(&mut self, arrived: Vec<ConfirmResult>) -> Result<(), AmqpError> {
        let mut confirmed = Vec::with_capacity(arrived.len());
        let mut end = None;
        for (id, result) in arrived {
            match result {
                Ok(Confirmation::Ack(None)) => confirmed.push((id, Ok(()))),
                Ok(Confirmation::Nack(None)) => {
                    confirmed.push((id, Err(QueueError::Refused("it was not stored".to_owned()))));
                    end.get_or_insert(AmqpError::Nacked);
                }
                Ok(Confirmation::Ack(Some(message)) | Confirmation::Nack(Some(message))) => {
                    let returned = message.properties.message_id().as_ref();
                    self.returned.extend(returned.and_then(|id| Uuid::try_parse(id.as_str()).ok()));
                    end.get_or_insert(AmqpError::InDoubt);
                }
                Ok(Confirmation::NotRequested) => {
                    end.get_or_insert(AmqpError::NotConfirming);
                }
                Err(error) => {
                    end.get_or_insert(error.into());
                }
            }
        }
        // After a return a confirm without one may still be that of a returned message.
        if self.returned.is_empty() && !matches!(end, Some(AmqpError::InDoubt)) {
            for (id, outcome) in confirmed {
                if let Some((_, pending)) = self.pending.remove(&id) {
                    pending.answer(outcome);
                }
            }
        }
        end.map_or(Ok(()), Err)
    }

    /// Answers everything that is left at the end of the session: returned messages as unroutable,
    /// all others with `error`.
    pub(super) fn fail_all(self, error: &AmqpError) {
        for (id, (_, pending)) in self.pending {
            pending.answer(Err(if self.returned.contains(&id) {
                QueueError::Unroutable
            } else {
                error.clone().into()
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lapin::{
        BasicProperties, ErrorKind,
        message::{BasicReturnMessage, Delivery},
    };
    use tokio::sync::{Semaphore, oneshot};

    use super::*;

    async fn insert(in_flight: &mut InFlight) -> (Uuid, oneshot::Receiver<Result<(), QueueError>>) {
        let permit = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        let (pending, outcome) = PendingConfirm::new(permit);
        (in_flight.insert(pending), outcome)
    }

    #[tokio::test]
    async fn a_confirm_and_a_nack_are_each_answered_as_they_are() {
        let mut in_flight = InFlight::default();
        let (a, of_a) = insert(&mut in_flight).await;
        let (b, of_b) = insert(&mut in_flight).await;
        let outcomes = vec![(b, Ok(Confirmation::Nack(None))), (a, Ok(Confirmation::Ack(None)))];
        let end = in_flight.resolve(outcomes);
        assert!(of_a.await.unwrap().is_ok());
        assert!(matches!(of_b.await.unwrap(), Err(QueueError::Refused(_))));
        assert!(matches!(end, Err(AmqpError::Nacked)), "a channel that nacks is not kept");
    }

    /// Makes the message with which RabbitMQ returns one that reached no queue.
    fn returned(id: Uuid) -> Option<BasicReturnMessage> {
        let mut delivery = Delivery::mock(0, "".into(), "queue".into(), false, Vec::new());
        delivery.properties = BasicProperties::default().with_message_id(id.to_string().into());
        Some(BasicReturnMessage { delivery, reply_code: 312, reply_text: "NO_ROUTE".into() })
    }

    #[tokio::test]
    async fn a_return_that_comes_with_another_messages_confirm_counts_for_its_own_message() {
        for its_own_first in [true, false] {
            let mut in_flight = InFlight::default();
            let (routed, of_routed) = insert(&mut in_flight).await;
            let (lost, of_lost) = insert(&mut in_flight).await;
            let mut outcomes = vec![
                (lost, Ok(Confirmation::Ack(None))),
                (routed, Ok(Confirmation::Ack(returned(lost)))),
            ];
            if !its_own_first {
                outcomes.reverse();
            }
            let error = in_flight.resolve(outcomes).unwrap_err();
            in_flight.fail_all(&error);
            assert!(matches!(of_lost.await.unwrap(), Err(QueueError::Unroutable)));
            assert!(matches!(of_routed.await.unwrap(), Err(QueueError::Unavailable(_))));
        }
    }

    #[tokio::test]
    async fn a_returned_message_whose_confirm_has_not_come_yet_is_unroutable_all_the_same() {
        let mut in_flight = InFlight::default();
        let (routed, of_routed) = insert(&mut in_flight).await;
        let (_, of_waiting) = insert(&mut in_flight).await;
        let (lost, of_lost) = insert(&mut in_flight).await;
        let outcomes = vec![(routed, Ok(Confirmation::Ack(returned(lost))))];
        let error = in_flight.resolve(outcomes).unwrap_err();
        in_flight.fail_all(&error);
        assert!(matches!(of_lost.await.unwrap(), Err(QueueError::Unroutable)));
        for in_doubt in [of_routed, of_waiting] {
            assert!(matches!(in_doubt.await.unwrap(), Err(QueueError::Unavailable(_))));
        }
    }

    #[tokio::test]
    async fn a_broken_session_answers_everything_in_flight_as_unavailable() {
        let mut in_flight = InFlight::default();
        let (a, of_a) = insert(&mut in_flight).await;
        let (_, of_b) = insert(&mut in_flight).await;
        let failure = ErrorKind::MissingHeartbeatError.into();
        let error = in_flight.resolve(vec![(a, Err(failure))]).unwrap_err();
        in_flight.fail_all(&error);
        for outcome in [of_a, of_b] {
            assert!(matches!(outcome.await.unwrap(), Err(QueueError::Unavailable(_))));
        }
    }

    #[tokio::test]
    async fn time_in_which_the_connection_was_blocked_makes_no_confirm_late() {
        let mut in_flight = InFlight::default();
        let (_, _of_a) = insert(&mut in_flight).await;
        let sent = in_flight.unconfirmed_since().unwrap();
        in_flight.block();
        let blocked = in_flight.blocked.unwrap();
        // Announced again, with another reason.
        in_flight.block();
        assert_eq!(in_flight.blocked, Some(blocked));
        let so_far = blocked.elapsed();
        assert!(in_flight.unblock() >= so_far);
        assert_eq!(in_flight.blocked, None);
        let unblocked = in_flight.unconfirmed_since().unwrap();
        assert!(unblocked > sent);
        let (_, _of_b) = insert(&mut in_flight).await;
        assert_eq!(in_flight.unconfirmed_since(), Some(unblocked));
    }

    #[tokio::test]
    async fn a_confirm_without_confirm_mode_is_an_error() {
        let mut in_flight = InFlight::default();
        let (a, of_a) = insert(&mut in_flight).await;
        let error = in_flight.resolve(vec![(a, Ok(Confirmation::NotRequested))]).unwrap_err();
        in_flight.fail_all(&error);
        assert!(matches!(of_a.await.unwrap(), Err(QueueError::Unavailable(_))));
    }
}
