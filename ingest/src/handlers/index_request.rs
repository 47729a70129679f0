//! Requests to the index, within a timeout.

use std::time::Duration;

use push_index::IndexError;

use super::context::Handlers;
use crate::rejection::Rejection;

impl Handlers {
    /// Waits for a request to the index, for as long as the settings allow.
    pub(super) async fn ask_index<T>(
        &self,
        request: impl Future<Output = Result<T, IndexError>>,
    ) -> Result<T, Rejection> {
        const UNAVAILABLE: Rejection = Rejection::Unavailable("the device index is unavailable");
        const REFUSES: Rejection = Rejection::Unavailable("the device index takes no changes now");
        let timeout: Duration = self.settings.apps.index_timeout;
        match tokio::time::timeout(timeout, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                let rejection =
                    if matches!(error, IndexError::Refused(_)) { REFUSES } else { UNAVAILABLE };
                let passes = error.may_pass();
                let error: &(dyn std::error::Error + 'static) = &error;
                if passes {
                    tracing::warn!(error, "the index did not do what a request asked");
                } else {
                    tracing::error!(error, "the index cannot do what a request asked");
                }
                Err(rejection)
            }
            Err(_) => {
                tracing::warn!(?timeout, "the index did not answer a request in time");
                Err(UNAVAILABLE)
            }
        }
    }
}
