//! Bounds on connections and requests.

use push_boot::{
    settings,
    settings::{ConfigErrors, count, size_between},
};

use super::{
    HttpSettings, LINE_MEMORY,
    constants::{LEAST_BODY, MOST_BODY},
};

/// The largest value of a setting for connections.
const MOST_CONNECTIONS: usize = 1_000_000;
/// The largest value of a setting for the memory of request bodies, in bytes.
const MOST_BUFFERED: usize = 1 << 40;

/// The flag and the variable of a setting, as errors name it.
const MAX_BUFFERED: &str = "--max-buffered (PUSH_MAX_BUFFERED)";

settings! {
    /// Flags about connections and requests.
    pub(super) struct RequestArgs, "Limits and quotas of HTTP" => HttpValues {
        /// Limit the connections that are served, as far as the limit of open files allows. One more takes
        /// the place of an idle one, or is answered 503. As many HTTP/2 requests of all connections may be
        /// in work beside the first one of each [default: 10000]
        max_connections: Option<usize> = ["N"] count(1, MOST_CONNECTIONS);
        /// Limit the connections from one address (IPv6: from one /64) [default: half of
        /// --max-connections]
        max_connections_per_address: Option<usize> = ["N"] count(1, MOST_CONNECTIONS);
        /// Limit the body of a batch request
        max_batch_body: usize = ["SIZE", "4MiB"] size_between(LEAST_BODY, MOST_BODY);
        /// Limit the pushes of a batch request
        max_batch_lines: usize = ["N", "1000"] count(1, 100_000);
        /// Limit the memory for all request bodies in work. A request beyond that is answered 503, a batch
        /// request already beyond half of it. One app may have a quarter of it, or as much as the largest
        /// requests need
        max_buffered: usize = ["SIZE", "128MiB"] size_between(LEAST_BODY, MOST_BUFFERED);
        /// Limit the client ids that one push may name
        max_client_ids: usize = ["N", "1000"] count(1, 100_000);
    }
}

impl RequestArgs {
    /// Returns the bounds, and how many client ids a push may name.
    pub(super) fn check(&self, errors: &mut ConfigErrors) -> Option<(HttpSettings, usize)> {
        let given = self.values(errors);
        let max_client_ids = given.as_ref().map_or(0, |given| given.max_client_ids);
        let settings = HttpSettings::read(max_client_ids, errors.tuning());
        let given = given?;
        let max_buffered_per_app = memory_per_app(settings.max_body, &given, errors);
        let settings = HttpSettings {
            max_connections: given.max_connections.unwrap_or(settings.max_connections),
            max_connections_is_given: given.max_connections.is_some(),
            max_connections_per_address: given.max_connections_per_address,
            max_batch_body: given.max_batch_body,
            max_batch_lines: given.max_batch_lines,
            max_buffered: given.max_buffered,
            max_buffered_per_app,
            ..settings
        };
        Some((settings, max_client_ids))
    }
}

/// Returns one app's share of the memory for bodies. Like the whole, it has room for the largest
/// request of each kind.
fn memory_per_app(max_body: usize, given: &HttpValues, errors: &mut ConfigErrors) -> usize {
    let HttpValues { max_batch_body, max_batch_lines, max_buffered, .. } = *given;
    let largest =
        Largest { single: max_body, batch: max_batch_body + max_batch_lines * LINE_MEMORY };
    largest.check_fit(max_buffered, errors);
    (max_buffered / 4).max(largest.single).max(2 * largest.batch).min(max_buffered)
}

/// The largest request of each kind, in bytes.
struct Largest {
    single: usize,
    batch: usize,
}

impl Largest {
    /// Checks that this many bytes hold the largest single push, and half of them the largest batch
    /// request.
    fn check_fit(&self, bytes: usize, errors: &mut ConfigErrors) {
        let Self { single, batch } = *self;
        if single > bytes {
            errors.note(format!(
                "{MAX_BUFFERED}: must hold the body of one push, up to {single} bytes"
            ));
        }
        if batch > bytes / 2 {
            errors.note(format!(
                "{MAX_BUFFERED}: half of it must hold one body of --max-batch-body and 1KiB for each of \
                 --max-batch-lines"
            ));
        }
    }
}
