//! The form in which a session is saved.

use std::{collections::VecDeque, num::NonZeroU16, sync::Arc, time::Duration};

use bytes::Bytes;
use push_model::{app::AppKey, ids::ClientId, registration::RegistrationEpoch};
use rmqtt_codec::types::QoS;
use tokio::time::Instant;

use super::{super::memory::AppShare, Changed, Life, Session, SessionLimits, messages::Message};
use crate::clocks::{Clocks, Expiry};

/// A session without a connection.
#[derive(Debug)]
pub(crate) struct SavedSession {
    pub(crate) app: AppKey,
    pub(crate) client: ClientId,
    pub(crate) registration: RegistrationEpoch,
    /// The QoS of its subscription, if it has one.
    pub(crate) qos: Option<QoS>,
    pub(crate) ends: Ends,
    /// Its messages, in sending order.
    pub(crate) messages: VecDeque<SavedMessage>,
}

/// The end of a saved session.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ends {
    /// At this time. `None` means beyond the range of [`Instant`].
    At(Option<Instant>),
    /// This long after the next start, because its device was connected when it was saved.
    After(Duration),
}

#[derive(Debug)]
pub(crate) struct SavedMessage {
    /// Its packet identifier, if it was sent and not acknowledged.
    pub(crate) id: Option<NonZeroU16>,
    pub(crate) payload: Bytes,
    pub(crate) expiry: Option<Expiry>,
}

/// The result of restoring a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    pub(crate) messages: usize,
    /// Messages without room.
    pub(crate) no_room: usize,
}

impl Session {
    /// Returns the form to save, or nothing if the session ends with its connection or is over.
    pub(crate) fn saved(&self, now: Clocks) -> Option<SavedSession> {
        let state = self.lock();
        let ends = match &state.life {
            Life::Owned { keep, .. } if keep.is_zero() => return None,
            Life::Owned { keep, .. } => Ends::After(*keep),
            Life::OfflineUntil(Some(end)) if *end <= now.monotonic => return None,
            Life::OfflineUntil(end) => Ends::At(*end),
            Life::Over => return None,
        };
        let messages = state.messages.all().filter(|(_, message)| !message.is_expired(now));
        let messages = messages.map(|(id, message)| SavedMessage {
            id,
            payload: message.payload.clone(),
            expiry: message.expiry,
        });
        Some(SavedSession {
            app: self.app.clone(),
            client: self.client.clone(),
            registration: self.registration,
            qos: state.subscribed,
            ends,
            messages: messages.collect(),
        })
    }

    /// Restores a saved session, with as many of its messages as fit. Returns `None` if it has expired.
    pub(in crate::sessions) fn restored(
        saved: SavedSession,
        share: AppShare,
        limits: SessionLimits,
        changed: Arc<Changed>,
        now: Clocks,
    ) -> Option<(Self, Kept)> {
        let end = match saved.ends {
            Ends::At(Some(end)) if end <= now.monotonic => return None,
            Ends::At(end) => end,
            Ends::After(keep) => now.monotonic.checked_add(keep),
        };
        let life = Life::OfflineUntil(end);
        let device = (saved.client, saved.registration);
        let session = Self::with(saved.app, device, share, limits, changed, life);
        let mut kept = Kept { messages: 0, no_room: 0 };
        let mut state = session.lock();
        state.subscribed = saved.qos;
        for SavedMessage { id, payload, expiry } in saved.messages {
            if expiry.is_some_and(|expiry| expiry.is_over(now)) {
                continue;
            }
            let Some(memory) = session.share.reserve_saved(payload.len()) else {
                kept.no_room += 1;
                continue;
            };
            state.messages.restore(id, Message { payload, expiry, memory });
            kept.messages += 1;
        }
        drop(state);
        Some((session, kept))
    }
}
