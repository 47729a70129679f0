//! Requests to the index, within a timeout.

use std::time::Duration;

use push_index::IndexError;
use push_model::{
    causes::with_causes,
    ids::{AppId, ClientId, MessageId},
};
use push_service::log_failure;
use tracing::field::{DisplayValue, display};

use super::context::Handlers;
use crate::rejection::Rejection;

/// The index did not answer for this long.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
struct Late(Duration);

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
        let timeout: Duration = self.settings.apps.index_timeout;
        let error = match tokio::time::timeout(timeout, request).await {
            Ok(Ok(answer)) => {
                self.index_outage.answered();
                return Ok(answer);
            }
            Ok(Err(error)) => error,
            Err(_) => IndexError::Unsure(Late(timeout).into()),
        };
        self.log_failure(subject, &error);
        Err(if matches!(error, IndexError::Refused(_)) { REFUSES } else { UNAVAILABLE })
    }

    /// An error that may pass is part of an outage, and logged with it. Another one is about what the
    /// request asked for, so each is logged.
    fn log_failure(&self, subject: Subject<'_>, error: &IndexError) {
        let (may_pass, error) = (error.may_pass(), with_causes(error));
        let (message_id, client_id) = (subject.message_id(), subject.client_id());
        let app = subject.app;
        if may_pass {
            log_failure!(
                self.index_outage.failed(),
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
