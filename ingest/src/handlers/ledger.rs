//! `GET` and `DELETE /v1/message/{AppID}/{message_id}`: the report of a message, and its recall.
//!
//! Both also work for a message that waits in the queue and has no ledger entry yet: its id shows
//! that it was accepted, and a recall writes an entry that the worker finds when it begins the
//! message.

use push_index::{horizon, recall_everywhere};
use push_model::{
    ids::{AppId, MessageId},
    ledger::RecallOutcome,
    report::Report,
    time::UnixMillis,
};

use super::context::Handlers;
use crate::{
    head::Head,
    rejection::Rejection,
    reply::{self, Reply},
    route::AppResource,
};

const MESSAGE: &str = "message";

impl Handlers {
    pub(super) async fn get_message(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
    ) -> Result<Reply, Rejection> {
        let now = UnixMillis::now();
        let (app, message) = self.authenticate_message(resource, head, now).await?;
        let report = match self.ask_index(self.index.entry(&app, &message)).await? {
            Some(entry) => Some(Report::of(&entry, now)),
            None => {
                let retention = self.settings.ledger_retention;
                let horizon = self.ask_index(horizon(&*self.index, &message, retention)).await?;
                Report::of_waiting(&app, &message, now, horizon)
            }
        };
        answer(&report.ok_or(Rejection::Unknown(MESSAGE))?)
    }

    pub(super) async fn recall_message(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
    ) -> Result<Reply, Rejection> {
        let now = UnixMillis::now();
        let (app, message) = self.authenticate_message(resource, head, now).await?;
        let retention = self.settings.ledger_retention;
        match self
            .ask_index(recall_everywhere(&*self.index, &app, &message, now, retention))
            .await?
        {
            RecallOutcome::Recalled(entry) | RecallOutcome::AlreadyClosed(entry) => {
                answer(&Report::of(&entry, now))
            }
            RecallOutcome::Unknown => Err(Rejection::Unknown(MESSAGE)),
        }
    }

    /// The app and the message id of the path, if the request has the app's secret.
    async fn authenticate_message(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
        now: UnixMillis,
    ) -> Result<(AppId, MessageId), Rejection> {
        let (app, _) = self.authenticate(&resource.app, head, now).await?;
        let message = resource.id.parse();
        Ok((app, message.map_err(|_| Rejection::Illegal("the message id must be a UUID".into()))?))
    }
}

fn answer(report: &Report) -> Result<Reply, Rejection> {
    reply::success(report).map_err(|_| Rejection::Unavailable("the answer cannot be written"))
}
