//! `GET` and `DELETE /v1/message/{AppID}/{message_id}`: what became of a message, and its recall.

use std::collections::BTreeMap;

use http::HeaderMap;
use push_shared::{
    ids::{AppId, MessageId},
    ledger::{Entry, FailReason, RecallOutcome, State},
    time::UnixMillis,
};
use serde::Serialize;

use super::Calls;
use crate::{
    rejection::Rejection,
    reply::{self, Reply},
    route::Member,
};

const MESSAGE: &str = "message (a message is known once a worker has begun it)";

/// The public part of a ledger entry. At every instant
/// `targeted = sent + failed + expired + recalled + pending`.
#[derive(Serialize)]
struct View<'a> {
    message_id: MessageId,
    app_id: &'a AppId,
    state: State,
    accepted_at: UnixMillis,
    expires_at: UnixMillis,
    targeted: u64,
    sent: u64,
    failed: &'a BTreeMap<FailReason, u64>,
    expired: u64,
    recalled: u64,
    pending: u64,
}

impl Calls {
    pub(super) async fn get_message(
        &self,
        member: &Member<'_>,
        headers: &HeaderMap,
    ) -> Result<Reply, Rejection> {
        let (app, message) = self.message_of(member, headers, UnixMillis::now()).await?;
        let entry = self.ask(self.index.entry(&app, &message)).await?;
        view(&entry.ok_or(Rejection::Unknown(MESSAGE))?)
    }

    pub(super) async fn recall_message(
        &self,
        member: &Member<'_>,
        headers: &HeaderMap,
    ) -> Result<Reply, Rejection> {
        let now = UnixMillis::now();
        let (app, message) = self.message_of(member, headers, now).await?;
        match self.ask(self.index.recall(&app, &message, now)).await? {
            RecallOutcome::Recalled(entry) | RecallOutcome::AlreadyClosed(entry) => view(&entry),
            RecallOutcome::Unknown => Err(Rejection::Unknown(MESSAGE)),
        }
    }

    async fn message_of(
        &self,
        member: &Member<'_>,
        headers: &HeaderMap,
        now: UnixMillis,
    ) -> Result<(AppId, MessageId), Rejection> {
        let (app, _) = self.app(&member.app, headers, now).await?;
        let message = member.id.parse();
        Ok((app, message.map_err(|_| Rejection::Illegal("the message id must be a UUID".into()))?))
    }
}

fn view(entry: &Entry) -> Result<Reply, Rejection> {
    let view = View {
        message_id: entry.message_id,
        app_id: &entry.app_id,
        state: entry.state(),
        accepted_at: entry.accepted_at,
        expires_at: entry.expires_at,
        targeted: entry.targeted,
        sent: entry.outcomes.sent,
        failed: &entry.outcomes.failed,
        expired: entry.outcomes.expired,
        recalled: entry.outcomes.recalled,
        pending: entry.pending(),
    };
    reply::success(&view).map_err(|_| Rejection::Unavailable("the answer cannot be written"))
}
