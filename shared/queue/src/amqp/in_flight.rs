//! The publishes that wait for their confirms, and what an outcome is worth.
//!
//! The client library hands a message that was returned as unroutable over with the confirm that
//! comes *next*, not with its own, which may follow later and look clean. So no outcome is
//! believed alone: all that are there are concluded together. A return is always received before
//! the confirm of the same message, so if a clean confirm of a returned message is among them,
//! the confirm that carries the return is as well.
//!
//! After a return the session ends: what was returned is answered as unroutable, everything else
//! in flight is in doubt.
//!
//! After a nack it ends as well. None of our queues has a limit that it could have reached, so a
//! nack says that its quorum queue had no leader for a moment. RabbitMQ 3.10 was seen to go on
//! nacking everything on a channel that had met that moment, with the leader long back, for as
//! long as the channel lived; another channel is served at once.

use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};

use lapin::Confirmation;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use uuid::Uuid;

use super::error::AmqpError;
use crate::QueueError;

/// The end of a publish that waits for the confirm, and the place in flight that it takes.
#[derive(Debug)]
pub(super) struct Waiting {
    answer: oneshot::Sender<Result<(), QueueError>>,
    _place: OwnedSemaphorePermit,
}

impl Waiting {
    /// A publish that has this place, and where its answer comes.
    pub(super) fn new(
        place: OwnedSemaphorePermit,
    ) -> (Self, oneshot::Receiver<Result<(), QueueError>>) {
        let (answer, outcome) = oneshot::channel();
        (Self { answer, _place: place }, outcome)
    }

    pub(super) fn answer(self, outcome: Result<(), QueueError>) {
        // The receiver is gone if its caller dropped the publish.
        let _ = self.answer.send(outcome);
    }
}

/// The outcome of one publish, with the id that it was sent under.
pub(super) type Outcome = (Uuid, Result<Confirmation, lapin::Error>);

/// The publishes of one session that wait for their confirms.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    waiting: HashMap<Uuid, (Instant, Waiting)>,
    returned: HashSet<Uuid>,
    /// When the connection was last unblocked.
    unblocked: Option<Instant>,
}

impl InFlight {
    /// Takes one in, under an id that no other message has: it names the message when it is
    /// returned, and later among the dead letters.
    pub(super) fn enter(&mut self, waiting: Waiting) -> Uuid {
        let id = Uuid::now_v7();
        self.waiting.insert(id, (Instant::now(), waiting));
        id
    }

    /// The connection is not blocked any more: the time until now was not the confirms' fault.
    pub(super) fn go_on(&mut self) {
        self.unblocked = Some(Instant::now());
    }

    /// Since when the server could have confirmed the oldest.
    pub(super) fn unconfirmed_since(&self) -> Option<Instant> {
        let oldest = self.waiting.values().map(|(since, _)| *since).min()?;
        Some(self.unblocked.map_or(oldest, |unblocked| unblocked.max(oldest)))
    }

    /// Answers the outcomes that have come together, or says why the session ends.
    pub(super) fn conclude(&mut self, outcomes: Vec<Outcome>) -> Result<(), AmqpError> {
        let mut confirmed = Vec::with_capacity(outcomes.len());
        let mut end = None;
        for (id, outcome) in outcomes {
            match outcome {
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
        // With a return among them even a clean confirm is not believed.
        if self.returned.is_empty() && !matches!(end, Some(AmqpError::InDoubt)) {
            for (id, outcome) in confirmed {
                if let Some((_, waiting)) = self.waiting.remove(&id) {
                    waiting.answer(outcome);
                }
            }
        }
        end.map_or(Ok(()), Err)
    }

    /// Answers everything that is left when the session is over.
    pub(super) fn abandon(self, error: &AmqpError) {
        for (id, (_, waiting)) in self.waiting {
            waiting.answer(Err(if self.returned.contains(&id) {
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
    use tokio::sync::Semaphore;

    use super::*;

    async fn enter(in_flight: &mut InFlight) -> (Uuid, oneshot::Receiver<Result<(), QueueError>>) {
        let place = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        let (waiting, outcome) = Waiting::new(place);
        (in_flight.enter(waiting), outcome)
    }

    #[tokio::test]
    async fn a_clean_confirm_and_a_nack_are_answered_each_as_it_is() {
        let mut in_flight = InFlight::default();
        let (a, of_a) = enter(&mut in_flight).await;
        let (b, of_b) = enter(&mut in_flight).await;
        let outcomes = vec![(b, Ok(Confirmation::Nack(None))), (a, Ok(Confirmation::Ack(None)))];
        let end = in_flight.conclude(outcomes);
        assert!(of_a.await.unwrap().is_ok());
        assert!(matches!(of_b.await.unwrap(), Err(QueueError::Refused(_))));
        assert!(matches!(end, Err(AmqpError::Nacked)), "a channel that nacks is not kept");
    }

    /// What comes back when a message reaches no queue.
    fn returned(id: Uuid) -> Option<BasicReturnMessage> {
        let mut delivery = Delivery::mock(0, "".into(), "queue".into(), false, Vec::new());
        delivery.properties = BasicProperties::default().with_message_id(id.to_string().into());
        Some(BasicReturnMessage { delivery, reply_code: 312, reply_text: "NO_ROUTE".into() })
    }

    #[tokio::test]
    async fn a_return_that_comes_with_another_messages_confirm_counts_for_its_own_message() {
        for clean_one_first in [true, false] {
            let mut in_flight = InFlight::default();
            let (routed, of_routed) = enter(&mut in_flight).await;
            let (lost, of_lost) = enter(&mut in_flight).await;
            let mut outcomes = vec![
                (lost, Ok(Confirmation::Ack(None))),
                (routed, Ok(Confirmation::Ack(returned(lost)))),
            ];
            if !clean_one_first {
                outcomes.reverse();
            }
            let error = in_flight.conclude(outcomes).unwrap_err();
            in_flight.abandon(&error);
            assert!(matches!(of_lost.await.unwrap(), Err(QueueError::Unroutable)));
            assert!(matches!(of_routed.await.unwrap(), Err(QueueError::Unavailable(_))));
        }
    }

    #[tokio::test]
    async fn a_returned_message_whose_confirm_has_not_come_yet_is_unroutable_all_the_same() {
        let mut in_flight = InFlight::default();
        let (routed, of_routed) = enter(&mut in_flight).await;
        let (_, of_waiting) = enter(&mut in_flight).await;
        let (lost, of_lost) = enter(&mut in_flight).await;
        let outcomes = vec![(routed, Ok(Confirmation::Ack(returned(lost))))];
        let error = in_flight.conclude(outcomes).unwrap_err();
        in_flight.abandon(&error);
        assert!(matches!(of_lost.await.unwrap(), Err(QueueError::Unroutable)));
        for in_doubt in [of_routed, of_waiting] {
            assert!(matches!(in_doubt.await.unwrap(), Err(QueueError::Unavailable(_))));
        }
    }

    #[tokio::test]
    async fn a_broken_session_answers_everything_in_flight_as_unavailable() {
        let mut in_flight = InFlight::default();
        let (a, of_a) = enter(&mut in_flight).await;
        let (_, of_b) = enter(&mut in_flight).await;
        let failure = ErrorKind::MissingHeartbeatError.into();
        let error = in_flight.conclude(vec![(a, Err(failure))]).unwrap_err();
        in_flight.abandon(&error);
        for outcome in [of_a, of_b] {
            assert!(matches!(outcome.await.unwrap(), Err(QueueError::Unavailable(_))));
        }
    }

    #[tokio::test]
    async fn time_in_which_the_connection_was_blocked_makes_no_confirm_late() {
        let mut in_flight = InFlight::default();
        let (_, _of_a) = enter(&mut in_flight).await;
        let sent = in_flight.unconfirmed_since().unwrap();
        in_flight.go_on();
        let unblocked = in_flight.unconfirmed_since().unwrap();
        assert!(unblocked > sent);
        let (_, _of_b) = enter(&mut in_flight).await;
        assert_eq!(in_flight.unconfirmed_since(), Some(unblocked));
    }

    #[tokio::test]
    async fn a_confirm_without_confirm_mode_is_an_error() {
        let mut in_flight = InFlight::default();
        let (a, of_a) = enter(&mut in_flight).await;
        let error = in_flight.conclude(vec![(a, Ok(Confirmation::NotRequested))]).unwrap_err();
        in_flight.abandon(&error);
        assert!(matches!(of_a.await.unwrap(), Err(QueueError::Unavailable(_))));
    }
}
