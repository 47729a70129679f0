//! Requests to the index: each has a time limit. The checks of `/readyz` log that the index is down; what lasts and
//! no check sees is two lines more, however many requests are refused meanwhile.

use std::{sync::Arc, time::Duration};

use push_boot::{log_end_of_outage, log_failure, outage::Outage};
use push_index::Index;
use push_ledger::Ledger;
use push_model::{
    causes::with_causes,
    ids::{AppId, ClientId, MessageId},
};
use push_store::IndexError;
use tracing::field::{DisplayValue, display};

use crate::rejection::Rejection;

/// The index did not answer for this long.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
struct Late(Duration);

/// An outage of the index, as the requests to it show it. Shared by everything that refuses a request
/// when the index fails.
#[derive(Debug, Clone)]
pub(crate) struct IndexOutage(Outage);

impl IndexOutage {
    pub(crate) fn new() -> Self {
        Self(Outage::of_refused_requests())
    }

    /// Asks the index, for so long at most. An answer may end an outage, which is logged.
    pub(crate) async fn ask<T>(
        &self,
        timeout: Duration,
        request: impl Future<Output = Result<T, IndexError>>,
    ) -> Result<T, IndexError> {
        let answer = tokio::time::timeout(timeout, request).await;
        let answer = answer.unwrap_or_else(|_| Err(IndexError::Unsure(Late(timeout).into())));
        if answer.is_ok()
            && let Some(ended) = self.0.answered()
        {
            let (for_ms, failed) = (ended.for_ms(), ended.failed);
            log_end_of_outage!(ended, for_ms, failed, "the index answers again");
        }
        answer
    }

    /// Notes an error that may pass. Returns true if it is to be logged as a warning ([`Outage::failed`]).
    pub(crate) fn failed(&self, error: &IndexError) -> bool {
        self.0.failed(1, error.kind())
    }
}

/// The index and the ledger, as handlers ask them.
#[derive(Debug)]
pub(crate) struct IndexClient {
    pub(crate) index: Arc<dyn Index>,
    pub(crate) ledger: Arc<dyn Ledger>,
    /// The time limit of an answer.
    pub(crate) timeout: Duration,
    pub(crate) outage: IndexOutage,
}

/// The subject of a request to the index, for the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    app: &'a AppId,
    message: Option<&'a MessageId>,
    client: Option<&'a ClientId>,
    is_in_ledger: bool,
}

impl<'a> Subject<'a> {
    pub(crate) fn app(app: &'a AppId) -> Self {
        Self { app, message: None, client: None, is_in_ledger: false }
    }

    pub(crate) fn messages(app: &'a AppId) -> Self {
        Self { is_in_ledger: true, ..Self::app(app) }
    }

    pub(crate) fn message(app: &'a AppId, message: &'a MessageId) -> Self {
        Self { message: Some(message), ..Self::messages(app) }
    }

    pub(crate) fn device(app: &'a AppId, client: &'a ClientId) -> Self {
        Self { client: Some(client), ..Self::app(app) }
    }

    /// Returns the text for a caller whose request the store refused, or did not answer. Messages are in the
    /// ledger, everything else is in the index.
    const fn unavailable(&self, is_refused: bool) -> &'static str {
        match (self.is_in_ledger, is_refused) {
            (false, false) => "the device index is unavailable",
            (false, true) => "the device index takes no changes now",
            (true, false) => "the ledger is unavailable",
            (true, true) => "the ledger takes no changes now",
        }
    }

    fn message_id(&self) -> Option<DisplayValue<&'a MessageId>> {
        self.message.map(display)
    }

    fn client_id(&self) -> Option<DisplayValue<&'a ClientId>> {
        self.client.map(display)
    }
}

impl IndexClient {
    /// Waits for a request to the index, for as long as the settings allow. `subject` is for the log.
    pub(crate) async fn ask<T>(
        &self,
        subject: Subject<'_>,
        request: impl Future<Output = Result<T, IndexError>>,
    ) -> Result<T, Rejection> {
        let answer = self.outage.ask(self.timeout, request).await;
        answer.map_err(|error| {
            self.log_failure(subject, &error);
            let is_refused = matches!(error, IndexError::Refused(_));
            Rejection::Unavailable(subject.unavailable(is_refused))
        })
    }

    /// Waits for a request like [`ask`](Self::ask), for at most `limit`, but one that is late is no sign of an outage:
    /// it asks for much. `late` says so to the caller.
    pub(crate) async fn ask_for_much<T>(
        &self,
        subject: Subject<'_>,
        request: impl Future<Output = Result<T, IndexError>>,
        limit: Duration,
        late: &'static str,
    ) -> Result<T, Rejection> {
        let late = |_| Rejection::Unavailable(late);
        tokio::time::timeout(limit, request).await.map_err(late)?.map_err(|error| {
            self.log_failure(subject, &error);
            Rejection::Unavailable(subject.unavailable(false))
        })
    }

    /// Logs an error: one that may pass with the outage that it is part of, any other one each time.
    fn log_failure(&self, subject: Subject<'_>, error: &IndexError) {
        let is_news = error.may_pass().then(|| self.outage.failed(error));
        let error = with_causes(error);
        let (message_id, client_id) = (subject.message_id(), subject.client_id());
        let app = subject.app;
        if let Some(is_news) = is_news {
            log_failure!(
                is_news, runbook = "a-store-is-unreachable-or-refuses-writes",
                %app,
                message_id,
                client_id,
                error,
                "the index did not do what a request asked"
            );
        } else {
            tracing::error!(
                runbook = "a-store-is-unreachable-or-refuses-writes",
                %app,
                message_id,
                client_id,
                error,
                "the index cannot do what a request asked"
            );
        }
    }
}
