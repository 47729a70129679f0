//! Recalling a message so that the answer can be relied on.

use super::{Index, IndexError};
use crate::{
    ids::{AppId, MessageId},
    ledger::{RECALL_CHECK, Recall, RecallOutcome},
};

/// Recalls a message, and answers when every worker knows: then nothing of it is handed to a
/// transport any more.
///
/// A worker hands a batch over only if it learnt less than [`RECALL_CHECK`] ago that the message
/// is not recalled. So that much time passes between the recall and the answer, and the answer
/// also counts what was sent in it. One that no worker has begun is answered at once.
///
/// # Errors
/// If the index did not answer; the message may be recalled all the same.
pub async fn recall_everywhere(
    index: &dyn Index,
    app: &AppId,
    message: &MessageId,
    recall: &Recall,
) -> Result<RecallOutcome, IndexError> {
    let outcome = index.recall(app, message, recall).await?;
    let RecallOutcome::Recalled(entry) = outcome else { return Ok(outcome) };
    if entry.copy.is_none() || entry.is_closed() {
        return Ok(RecallOutcome::Recalled(entry));
    }
    tokio::time::sleep(RECALL_CHECK).await;
    let later = index.entry(app, message).await?;
    Ok(RecallOutcome::Recalled(later.unwrap_or(entry)))
}
