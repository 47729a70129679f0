//! Bounds on connections and requests.

use std::num::NonZeroUsize;

use push_boot::{
    proxy_protocol::TrustedProxies,
    settings::{ConfigErrors, count, size, size_between, some_time},
};

use crate::settings::{HttpSettings, IngestArgs, LINE_MEMORY};

/// Connections served at once, if the operator does not say how many.
const MAX_CONNECTIONS: usize = 10_000;
/// The largest value of a setting for connections.
const MOST_CONNECTIONS: usize = 1_000_000;
/// What the body of one request may have, in bytes.
const LEAST_BODY: usize = 1 << 10;
const MOST_BODY: usize = 64 << 20;
/// What the bodies of all requests in work may have, in bytes.
const MOST_BUFFERED: usize = 1 << 40;

/// A setting by both of its names.
const MAX_BUFFERED: &str = "--max-buffered (PUSH_MAX_BUFFERED)";
const MAX_BUFFERED_PER_APP: &str = "--max-buffered-per-app (PUSH_MAX_BUFFERED_PER_APP)";

/// What the bodies of requests may take.
struct Memory {
    max_body: usize,
    max_batch_body: usize,
    max_batch_lines: usize,
    max_buffered: usize,
    max_buffered_per_app: usize,
}

impl IngestArgs {
    pub(super) fn check_http(&self, errors: &mut ConfigErrors) -> Option<HttpSettings> {
        let mut connections = |flag, text: Option<&String>| match text {
            None => Some(None),
            Some(text) => errors.read(flag, text, count(1, MOST_CONNECTIONS)).map(Some),
        };
        let max_connections = connections("--max-connections", self.max_connections.as_ref());
        let per_address = self.max_connections_per_address.as_ref();
        let max_connections_per_address = connections("--max-connections-per-address", per_address);
        let mut time = |flag, text| errors.read(flag, text, some_time);
        let header_timeout = time("--header-timeout", &self.header_timeout);
        let body_timeout = time("--body-timeout", &self.body_timeout);
        let idle_timeout = time("--idle-timeout", &self.idle_timeout);
        let max_header =
            errors.read("--max-header", &self.max_header, size_between(1 << 10, 1 << 20));
        let h2_streams = errors.read("--h2-streams", &self.h2_streams, count(1, 10_000));
        let min_body_rate = errors.read("--min-body-rate", &self.min_body_rate, size);
        let memory = self.check_memory(errors)?;
        Some(HttpSettings {
            max_connections: max_connections?.unwrap_or(MAX_CONNECTIONS),
            max_connections_is_given: self.max_connections.is_some(),
            max_connections_per_address: max_connections_per_address?,
            header_timeout: header_timeout?,
            body_timeout: body_timeout?,
            idle_timeout: idle_timeout?,
            max_header: max_header?,
            max_body: memory.max_body,
            max_batch_body: memory.max_batch_body,
            max_batch_lines: memory.max_batch_lines,
            h2_streams: h2_streams?,
            max_buffered: memory.max_buffered,
            max_buffered_per_app: memory.max_buffered_per_app,
            min_body_rate: NonZeroUsize::new(min_body_rate?),
            trusted_proxies: TrustedProxies::default(),
        })
    }

    /// The memory for bodies, of which each bound must hold the largest request of each kind.
    fn check_memory(&self, errors: &mut ConfigErrors) -> Option<Memory> {
        let body = || size_between(LEAST_BODY, MOST_BODY);
        let buffered = || size_between(LEAST_BODY, MOST_BUFFERED);
        let max_body = errors.read("--max-body", &self.max_body, body());
        let max_batch_body = errors.read("--max-batch-body", &self.max_batch_body, body());
        let lines = &self.max_batch_lines;
        let max_batch_lines = errors.read("--max-batch-lines", lines, count(1, 100_000));
        let max_buffered = errors.read("--max-buffered", &self.max_buffered, buffered());
        let per_app = self.max_buffered_per_app.as_ref();
        let per_app = per_app.map(|text| errors.read("--max-buffered-per-app", text, buffered()));
        let (max_body, max_batch_body) = (max_body?, max_batch_body?);
        let (max_batch_lines, max_buffered) = (max_batch_lines?, max_buffered?);
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
        Some(Memory {
            max_body,
            max_batch_body,
            max_batch_lines,
            max_buffered,
            max_buffered_per_app,
        })
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
            errors.note(format!("{name}: must hold one body of --max-body"));
        }
        if self.batch > bytes / 2 {
            errors.note(format!(
                "{name}: half of it must hold one body of --max-batch-body and 1KiB for each of \
                 --max-batch-lines"
            ));
        }
    }
}
