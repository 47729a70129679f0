//! The HTTP client of the checks. It follows no redirect and takes no proxy from the environment,
//! because the answer must be that of the server that was named.

use std::time::Duration;

/// A client whose requests take no longer than this in all, and whose answers have any status.
pub(in crate::doctor) fn client(timeout: Duration) -> ureq::Agent {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_global(Some(timeout))
        .proxy(None)
        .build()
        .into()
}
