//! `GET /v1/message/{AppID}`: the messages of an app, newest first. `GET` and `DELETE
//! /v1/message/{AppID}/{message_id}`: the report of a message, and its recall.
//!
//! The calls for one message also work for a message that waits in the queue and has no ledger entry yet: its id shows
//! that it was accepted, and a recall writes an entry that the worker finds when it begins the
//! message.

use std::sync::Arc;

use push_boot::audit;
use push_ledger::{MessageQuery, begin_recall, horizon, list_messages, recall_known};
use push_model::{
    app::Scope,
    audit::{Action, AuditEvent},
    ids::MessageId,
    ledger::{ListPlace, MessageState, RecallOutcome, Retention},
    report::Report,
    time::UnixMillis,
    usage::UsageKind,
};
use push_store::IndexError;
use tokio::{sync::Semaphore, time::timeout};

use super::{
    list_query::ListQuery,
    other_call::{acquire_call, success},
    usage_sync::UsageSync,
};
use crate::{
    allowance::RateStatus,
    apps::{Caller, Logins, MessagePlaces, RecallPermit},
    head::Head,
    index_client::{IndexClient, Subject},
    rejection::Rejection,
    reply::Reply,
    route::AppResource,
};

const MESSAGE: &str = "message";

/// The most pages of messages that are read concurrently. Each asks Redis for some thousand members of lists,
/// and pushes wait for their turn beside them.
pub(super) const PAGES_AT_ONCE: usize = 2;

/// Answers the calls for messages.
#[derive(Debug)]
pub(super) struct MessageHandler {
    pub(super) logins: Arc<Logins>,
    pub(super) index: Arc<IndexClient>,
    pub(super) usage: Arc<UsageSync>,
    pub(super) retention: Retention,
    /// Has [`PAGES_AT_ONCE`] permits.
    pub(super) pages: Semaphore,
}

impl MessageHandler {
    /// Reports on a message.
    pub(super) async fn get(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
    ) -> Result<Reply, Rejection> {
        let now = UnixMillis::now();
        let (caller, message, rate) = self.authenticate(resource, head, Scope::Read, now).await?;
        let (app, subject) = (caller.key(), Subject::message(&caller.app, &message));
        let report = match self.index.ask(subject, self.index.ledger.entry(&app, &message)).await? {
            Some(entry) => Some(Report::of(&entry, now)),
            None => {
                let horizon = horizon(&*self.index.ledger, &app, &message, self.retention);
                let horizon = self.index.ask(subject, horizon).await?;
                Report::of_waiting(&app, &message, now, horizon)
            }
        };
        success(&report.ok_or(Rejection::Unknown(MESSAGE))?, rate)
    }

    /// Lists the messages of an app.
    pub(super) async fn list(&self, app: &str, head: &Head<'_>) -> Result<Reply, Rejection> {
        let now = UnixMillis::now();
        let caller = self.logins.authenticate(app, head, Scope::Read, now).await?;
        let rate = acquire_call(&caller.cached).await?;
        let (key, id_key) = (caller.key(), &caller.cached.app.id_key);
        let ListQuery { limit, cursor, state } = ListQuery::parse(head.query)?;
        let place = |cursor: &str| ListPlace::of_cursor(&key, id_key, cursor);
        let foreign = "the cursor is not one that this app was answered";
        let before = cursor
            .map(|cursor| place(&cursor).ok_or_else(|| Rejection::Illegal(foreign.into())))
            .transpose()?;
        let unknown = "state must be accepted, sending, done, recalled or expired";
        let state = state
            .map(|state| {
                MessageState::of_name(&state).ok_or_else(|| Rejection::Illegal(unknown.into()))
            })
            .transpose()?;
        let query = MessageQuery { limit, before, state };
        let turn = async { (caller.cached.lists.acquire().await, self.pages.acquire().await) };
        let busy = |_| Rejection::Unavailable("too many lists of messages are asked for");
        let _turn = timeout(self.index.timeout, turn).await.map_err(busy)?;
        let list = list_messages(&*self.index.ledger, &key, &query, now);
        let (subject, late) = (Subject::messages(&caller.app), "the ledger did not answer in time");
        let page = self.index.ask_for_much(subject, list, self.index.timeout, late).await?;
        success(&page.into_reports(&key, id_key), rate)
    }

    pub(super) async fn recall(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
    ) -> Result<Reply, Rejection> {
        let now = UnixMillis::now();
        let (caller, message, rate) = self.authenticate(resource, head, Scope::Recall, now).await?;
        let permit = caller.cached.recalls.begin()?;
        let place = self.place_for_recall(&caller, &message, now).await?;
        let subject = Subject::message(&caller.app, &message);
        let begin = self.begin_recall(&caller, message, now, place, permit);
        let outcome = self.index.ask(subject, begin).await?;
        let app = caller.key();
        let known = recall_known(&*self.index.ledger, &app, &message, outcome);
        match self.index.ask(subject, known).await? {
            RecallOutcome::Recalled(entry) | RecallOutcome::AlreadyClosed(entry) => {
                success(&Report::of(&entry, now), rate)
            }
            RecallOutcome::Unknown => Err(Rejection::Unknown(MESSAGE)),
        }
    }

    /// Recalls a message in a task of its own: a client that goes away meanwhile would otherwise
    /// leave a recall that is neither counted nor in the audit log. The permit ends with the task, not
    /// with the request, so that clients that go away do not begin recalls without end.
    async fn begin_recall(
        &self,
        caller: &Caller,
        message: MessageId,
        now: UnixMillis,
        place: Option<Box<MessagePlaces>>,
        permit: RecallPermit,
    ) -> Result<RecallOutcome, IndexError> {
        let (ledger, retention) = (Arc::clone(&self.index.ledger), self.retention);
        let app = caller.key();
        let event = AuditEvent {
            app: Some(caller.app.clone()),
            secret: caller.secret_name().map(str::to_owned),
            message: Some(message),
            ..audit::event("ingest", Action::MessageRecalled)
        };
        let recall = tokio::spawn(async move {
            let _permit = permit;
            let outcome = begin_recall(&*ledger, &app, &message, now, retention).await?;
            if let RecallOutcome::Recalled(entry) = &outcome {
                // The recall made an entry.
                if entry.dedup_nonce.is_none() && entry.recalled_at == Some(now) {
                    place.into_iter().for_each(|place| place.confirmed());
                }
                audit::log(&event);
            }
            Ok(outcome)
        });
        recall.await.unwrap_or_else(|error| Err(IndexError::Unsure(error.into())))
    }

    /// Returns a place for the ledger entry that a recall may make. An app that has no place left can recall
    /// what has an entry already.
    async fn place_for_recall(
        &self,
        caller: &Caller,
        message: &MessageId,
        now: UnixMillis,
    ) -> Result<Option<Box<MessagePlaces>>, Rejection> {
        self.usage.learn(&caller.cached).await;
        match self.usage.place(&caller.cached, UsageKind::EarlyRecall, now, now) {
            Err(used_up) => {
                let app = caller.key();
                let entry = self.index.ledger.entry(&app, message);
                match self.index.ask(Subject::message(&caller.app, message), entry).await? {
                    Some(_) => Ok(None),
                    None => Err(used_up),
                }
            }
            place => place,
        }
    }

    /// Returns the caller, the message id of the path and the rest of the app's rate limit, if the
    /// request has a secret with this scope.
    async fn authenticate(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
        scope: Scope,
        now: UnixMillis,
    ) -> Result<(Caller, MessageId, Option<RateStatus>), Rejection> {
        let caller = self.logins.authenticate(&resource.app, head, scope, now).await?;
        let rate = acquire_call(&caller.cached).await?;
        let message = resource.id.parse();
        let not_an_id = |_| Rejection::Illegal("the message id must be a UUID".into());
        let message = message.map_err(not_an_id)?;
        head.note_message(message);
        Ok((caller, message, rate))
    }
}
