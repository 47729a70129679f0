//! Dead letters: the queue messages that no worker could process.

use push_index::Index;
use push_model::{audit::Action, time::UnixMillis};
use push_queue::{DeadLetter, Lane, Queue};
use serde::Serialize;

use crate::audit::{Actor, recorded};

/// A dead letter.
#[derive(Debug, Clone, Serialize)]
pub struct DeadLetterView {
    /// Identifies it for [`replay`] and [`drop_letters`].
    pub id: String,
    /// The lane it came from; none if that is unknown.
    pub lane: Option<&'static str>,
    /// The reason for which it was dead-lettered.
    pub reason: String,
    /// When it was dead-lettered; none if that is unknown.
    pub died_at: Option<UnixMillis>,
    /// The envelope, as text.
    pub payload: String,
    /// The length of the envelope.
    pub bytes: usize,
}

impl From<DeadLetter> for DeadLetterView {
    fn from(DeadLetter { id, lane, reason, died_at, payload }: DeadLetter) -> Self {
        let (lane, bytes) = (lane.map(Lane::name), payload.len());
        let payload = String::from_utf8_lossy(&payload).into_owned();
        Self { id, lane, reason, died_at, payload, bytes }
    }
}

/// The number of dead letters that went back to their lanes.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Replayed {
    /// The number.
    pub replayed: u64,
}

/// The number of dead letters that were deleted.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Dropped {
    /// The number.
    pub dropped: u64,
}

/// Lists at most `limit` dead letters, the oldest first.
///
/// # Errors
/// If the queue did not answer.
pub async fn list(queue: &dyn Queue, limit: usize) -> anyhow::Result<Vec<DeadLetterView>> {
    Ok(queue.dead(limit).await?.into_iter().map(Into::into).collect())
}

/// Moves dead letters back to the lanes they came from: those with these ids, or all without ids.
/// Without an index, only the log says who did it.
///
/// # Errors
/// If the queue did not answer, or it was not recorded.
pub async fn replay(
    queue: &dyn Queue,
    index: Option<&dyn Index>,
    actor: &Actor,
    ids: Option<&[String]>,
) -> anyhow::Result<Replayed> {
    let work = async { Ok(Replayed { replayed: queue.replay_dead(ids).await? }) };
    recorded(index, actor.event(Action::DeadLettersReplayed), work).await
}

/// Deletes dead letters: those with these ids, or all without ids. Without an index, only the log says
/// who did it.
///
/// # Errors
/// If the queue did not answer, or it was not recorded.
pub async fn drop_letters(
    queue: &dyn Queue,
    index: Option<&dyn Index>,
    actor: &Actor,
    ids: Option<&[String]>,
) -> anyhow::Result<Dropped> {
    let work = async { Ok(Dropped { dropped: queue.drop_dead(ids).await? }) };
    recorded(index, actor.event(Action::DeadLettersDropped), work).await
}
