//! Saves the sessions at intervals and when the broker stops.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    sessions::Sessions,
    settings::SavingSettings,
    store::{Store, StoreError},
};

/// Saves the sessions of one broker.
#[derive(Debug)]
pub(super) struct Saving {
    store: Store,
    sessions: Arc<Sessions>,
    interval: Duration,
    failures: AtomicU64,
}

impl Saving {
    /// Reads the saved sessions into `empty` ones.
    pub(super) fn open(
        settings: &SavingSettings,
        empty: impl Fn() -> Arc<Sessions>,
    ) -> Result<(Arc<Sessions>, Arc<Self>), StoreError> {
        let store = Store::open(&settings.data_dir)?;
        let mut sessions = empty();
        match store.load(&sessions) {
            Ok(restored) => {
                let (sessions, messages) = (restored.sessions, restored.messages);
                if sessions > 0 {
                    info!(sessions, messages, "saved MQTT sessions are restored");
                }
                let lost = restored.no_room;
                if lost > 0 {
                    warn!(
                        runbook = "mqtt-sessions-are-not-saved",
                        lost,
                        "saved MQTT sessions or messages exceed the bounds of the settings and are dropped"
                    );
                }
            }
            Err(damaged @ StoreError::Damaged { .. }) => {
                let aside = store.put_aside()?;
                let cause = &damaged as &dyn std::error::Error;
                error!(
                    runbook = "mqtt-sessions-are-not-saved",
                    cause,
                    aside = %aside.display(),
                    "the file of saved MQTT sessions is damaged and was moved aside; the broker starts without sessions"
                );
                sessions = empty();
            }
            Err(error) => return Err(error),
        }
        let interval = settings.interval;
        let saving =
            Self { store, sessions: sessions.clone(), interval, failures: AtomicU64::new(0) };
        Ok((sessions, Arc::new(saving)))
    }

    /// Saves changes at intervals until the broker stops.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut failed = false;
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.interval) => {}
                () = stop.cancelled() => return,
            }
            if !self.sessions.take_changed() {
                continue;
            }
            match self.save().await {
                Ok(()) => failed = false,
                Err(error) => {
                    self.sessions.still_changed();
                    if !std::mem::replace(&mut failed, true) {
                        let cause = &error as &dyn std::error::Error;
                        error!(
                            runbook = "mqtt-sessions-are-not-saved",
                            cause,
                            "MQTT sessions cannot be saved; a restart would lose waiting messages"
                        );
                    }
                }
            }
        }
    }

    /// Saves the sessions now.
    pub(super) async fn save(self: &Arc<Self>) -> Result<(), StoreError> {
        let saving = self.clone();
        let saved = tokio::task::spawn_blocking(move || saving.store.save(&saving.sessions)).await;
        let saved = saved.unwrap_or_else(|_| Err(self.store.not_written()));
        if saved.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        saved
    }

    /// The number of failed saves.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}
