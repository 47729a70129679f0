//! Bounds on connections and requests.

use std::num::NonZeroUsize;

use push_boot::settings::{ConfigErrors, count, on_or_off, size, size_between};

use crate::settings::{
    HttpSettings, IngestArgs, LINE_MEMORY,
    constants::{LEAST_BODY, MOST_BODY},
};

/// The largest value of a setting for connections.
const MOST_CONNECTIONS: usize = 1_000_000;
/// What the bodies of all requests in work may have, in bytes.
const MOST_BUFFERED: usize = 1 << 40;

/// A setting by both of its names.
const MAX_BUFFERED: &str = "--max-buffered (PUSH_MAX_BUFFERED)";
const MAX_BUFFERED_PER_APP: &str = "--max-buffered-per-app (PUSH_MAX_BUFFERED_PER_APP)";

/// What the bodies of requests may take.
struct Memory {
    max_batch_body: usize,
    max_batch_lines: usize,
    max_buffered: usize,
    max_buffered_per_app: usize,
}

impl IngestArgs {
    pub(super) fn check_http(
        &self,
        max_client_ids: Option<usize>,
        errors: &mut ConfigErrors,
    ) -> Option<HttpSettings> {
        let settings = HttpSettings::read(max_client_ids.unwrap_or_default(), errors.tuning());
        let fast_path = errors.read("--fast-path", &self.fast_path, on_or_off);
        let mut connections = |flag, text: Option<&String>| match text {
            None => Some(None),
            Some(text) => errors.read(flag, text, count(1, MOST_CONNECTIONS)).map(Some),
        };
        let max_connections = connections("--max-connections", self.max_connections.as_ref());
        let per_address = self.max_connections_per_address.as_ref();
        let max_connections_per_address = connections("--max-connections-per-address", per_address);
        let min_body_rate = errors.read("--min-body-rate", &self.min_body_rate, size);
        let memory = self.check_memory(settings.max_body, errors)?;
        Some(HttpSettings {
            fast_path: fast_path?,
            max_connections: max_connections?.unwrap_or(settings.max_connections),
            max_connections_is_given: self.max_connections.is_some(),
            max_connections_per_address: max_connections_per_address?,
            max_batch_body: memory.max_batch_body,
            max_batch_lines: memory.max_batch_lines,
            max_buffered: memory.max_buffered,
            max_buffered_per_app: memory.max_buffered_per_app,
            min_body_rate: NonZeroUsize::new(min_body_rate?),
            ..settings
        })
    }

    /// Reads the memory for bodies. Each bound must hold the largest request of each kind.
    fn check_memory(&self, max_body: usize, errors: &mut ConfigErrors) -> Option<Memory> {
        let buffered = || size_between(LEAST_BODY, MOST_BUFFERED);
        let max_batch_body = errors.read(
            "--max-batch-body",
            &self.max_batch_body,
            size_between(LEAST_BODY, MOST_BODY),
        );
        let lines = &self.max_batch_lines;
        let max_batch_lines = errors.read("--max-batch-lines", lines, count(1, 100_000));
        let max_buffered = errors.read("--max-buffered", &self.max_buffered, buffered());
        let per_app = self.max_buffered_per_app.as_ref();
        let per_app = per_app.map(|text| errors.read("--max-buffered-per-app", text, buffered()));
        let (max_batch_body, max_batch_lines) = (max_batch_body?, max_batch_lines?);
        let max_buffered = max_buffered?;
        let largest =
            Largest { single: max_body, batch: max_batch_body + max_batch_lines * LINE_MEMORY };
        largest.fit_into(MAX_BUFFERED, max_buffered, errors);
        let max_buffered_per_app = match per_app {
            None => {
                let share = (max_buffered / 4).max(largest.single).max(2 * largest.batch);
                share.min(max_buffered)
            }
            Some(per_app) => {
                let per_app = per_app?;
                largest.fit_into(MAX_BUFFERED_PER_APP, per_app, errors);
                if per_app > max_buffered {
                    errors.note(format!(
                        "{MAX_BUFFERED_PER_APP}: is more than {MAX_BUFFERED}, of which it is one \
                         app's share: lower it, or raise the other"
                    ));
                }
                per_app
            }
        };
        Some(Memory { max_batch_body, max_batch_lines, max_buffered, max_buffered_per_app })
    }
}

/// The largest request of each kind, in bytes.
struct Largest {
    single: usize,
    batch: usize,
}

impl Largest {
    /// Checks that so many bytes hold one request of each kind; of batch requests, in half of them.
    fn fit_into(&self, name: &str, bytes: usize, errors: &mut ConfigErrors) {
        if self.single > bytes {
            errors.note(format!(
                "{name}: must hold the body of one push, which is up to {} bytes",
                self.single
            ));
        }
        if self.batch > bytes / 2 {
            errors.note(format!(
                "{name}: half of it must hold one body of --max-batch-body and 1KiB for each of \
                 --max-batch-lines"
            ));
        }
    }
}
