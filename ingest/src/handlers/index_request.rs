//! Requests to the index, within a timeout.

use push_boot::log_failure;
use push_index::IndexError;
use push_model::{
    causes::with_causes,
    ids::{AppId, ClientId, MessageId},
};
use tracing::field::{DisplayValue, display};

use super::context::Handlers;
use crate::rejection::Rejection;

/// What a request to the index is about, for the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    app: &'a AppId,
    message: Option<&'a MessageId>,
    client: Option<&'a ClientId>,
}

impl<'a> Subject<'a> {
    /// An app as a whole.
    pub(super) fn app(app: &'a AppId) -> Self {
        Self { app, message: None, client: None }
    }

    /// A message of an app.
    pub(super) fn message(app: &'a AppId, message: &'a MessageId) -> Self {
        Self { app, message: Some(message), client: None }
    }

    /// A device of an app.
    pub(super) fn device(app: &'a AppId, client: &'a ClientId) -> Self {
        Self { app, message: None, client: Some(client) }
    }

    fn message_id(&self) -> Option<DisplayValue<&'a MessageId>> {
        self.message.map(display)
    }

    fn client_id(&self) -> Option<DisplayValue<&'a ClientId>> {
        self.client.map(display)
    }
}

impl Handlers {
    /// Waits for a request to the index, for as long as the settings allow. `subject` tells the log
    /// what it is about.
    pub(super) async fn ask_index<T>(
        &self,
        subject: Subject<'_>,
        request: impl Future<Output = Result<T, IndexError>>,
    ) -> Result<T, Rejection> {
        const UNAVAILABLE: Rejection = Rejection::Unavailable("the device index is unavailable");
        const REFUSES: Rejection = Rejection::Unavailable("the device index takes no changes now");
        let answer = self.index_outage.ask(self.settings.apps.index_timeout, request).await;
        answer.map_err(|error| {
            self.log_failure(subject, &error);
            if matches!(error, IndexError::Refused(_)) { REFUSES } else { UNAVAILABLE }
        })
    }

    /// An error that may pass is part of an outage, and logged with it. Another one is about what the
    /// request asked for, so each is logged.
    fn log_failure(&self, subject: Subject<'_>, error: &IndexError) {
        let is_first = error.may_pass().then(|| self.index_outage.failed(error));
        let error = with_causes(error);
        let (message_id, client_id) = (subject.message_id(), subject.client_id());
        let app = subject.app;
        if let Some(is_first) = is_first {
            log_failure!(
                is_first,
                %app,
                message_id,
                client_id,
                error,
                "the index did not do what a request asked"
            );
        } else {
            tracing::error!(
                %app,
                message_id,
                client_id,
                error,
                "the index cannot do what a request asked"
            );
        }
    }
}
