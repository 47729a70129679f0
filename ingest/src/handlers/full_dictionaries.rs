//! Logs that attributes are stored as absent: at most once a minute, because devices cause it.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use push_model::ids::AppId;
use tracing::warn;

const PAUSE: Duration = Duration::from_mins(1);

/// The time of the last log line, and the number of registrations that were not named since.
#[derive(Debug, Default)]
pub(super) struct FullDictionaries {
    logged: Mutex<Option<Instant>>,
    unnamed: AtomicU64,
}

impl FullDictionaries {
    /// Logs a device that is stored without these parts, unless another one was logged shortly before.
    pub(super) fn log(&self, app: &AppId, absent: &[String]) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_some_and(|at| at.elapsed() < PAUSE) {
            self.unnamed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        *logged = Some(Instant::now());
        let unnamed = self.unnamed.swap(0, Ordering::Relaxed);
        let attributes = absent.join(", ");
        warn!(
            runbook = "attribute-values-run-out",
            %app,
            attributes,
            others = unnamed,
            "the dictionaries of an app are full: a device is stored without these attributes"
        );
    }
}
