//! Keys, and the callers that have them. This is the one place that decides if a caller may do something.
//!
//! - `caller`: a caller, and its rights
//! - `refused`: everything that is answered with an error

mod caller;
mod refused;

use std::{
    collections::HashMap,
    net::IpAddr,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use push_boot::{
    audit::{LoginsOf, log_failed_logins},
    failed_logins::FailedLoginCount,
    network::failures::Failures,
};
use push_index::Index;
use push_model::{
    admin_key::{AdminKey, AdminKeyText, KeyDigest, MAX_ADMIN_KEYS, hour_of_use},
    time::UnixMillis,
};
use push_operator::admin_key;
use tokio::time::Instant;

pub use self::{
    caller::{Caller, Reach},
    refused::Refused,
};

/// The time between two log lines about wrong keys.
pub(crate) const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The wrong keys that an address may present in a minute.
const WRONG_KEYS: u32 = 20;

/// The keys of the admin API.
#[derive(Debug)]
pub struct Access {
    program: &'static str,
    index: Arc<dyn Index>,
    clock: fn() -> UnixMillis,
    failed: Failures,
    /// The digest of a random key that is stored nowhere. It identifies whoever opened the link on the terminal.
    terminal: KeyDigest,
    /// The number of wrong keys since they were last logged.
    unlogged: FailedLoginCount,
    /// Keys that were right, each with the hour of use that the index knows.
    known: Mutex<HashMap<KeyDigest, UnixMillis>>,
}

impl Access {
    pub(crate) fn new(
        program: &'static str,
        index: Arc<dyn Index>,
        clock: fn() -> UnixMillis,
    ) -> Self {
        let failed = Failures::new(NonZeroU32::new(WRONG_KEYS), Instant::now());
        let unlogged = FailedLoginCount::default();
        let terminal = KeyDigest::of(&AdminKeyText::generate());
        Self { program, index, clock, failed, terminal, unlogged, known: Mutex::default() }
    }

    /// Finds the caller that presents this key from this address. The index is asked each time, so a key that was
    /// revoked opens nothing. An address that presented too many wrong keys is refused without asking it, except
    /// with a key that was right before: other callers may share the address.
    ///
    /// # Errors
    /// If the key is not valid, the address has presented too many wrong ones, or the index did not answer.
    pub async fn admit(&self, presented: &[u8], address: IpAddr) -> Result<Caller, Refused> {
        let known = KeyDigest::of_presented(presented).filter(|digest| self.is_known(digest));
        let now = Instant::now();
        if known.is_none() {
            let counted = self.failed.count(address, now);
            counted.map_err(|retry_after| {
                self.wrong(Refused::TooManyWrongKeys { retry_after }, address)
            })?;
        }
        let found = admin_key::verify(&*self.index, presented).await;
        if known.is_none() && !matches!(found, Ok(None)) {
            self.failed.take_back(address);
        }
        let found = found.map_err(|error| Refused::UseCase(error.into()))?;
        let Some(key) = found else {
            if let Some(digest) = known {
                self.known().remove(&digest);
            }
            return Err(self.wrong(Refused::WrongKey, address));
        };
        self.note_use(&key);
        Ok(Caller::new(key, address, self.program))
    }

    /// Finds the caller who presented the key with this digest before. None if it is not valid any more.
    ///
    /// # Errors
    /// If the index did not answer.
    pub async fn resume(
        &self,
        digest: &KeyDigest,
        address: IpAddr,
    ) -> Result<Option<Caller>, Refused> {
        let found = admin_key::find(&*self.index, digest).await;
        let found = found.map_err(|error| Refused::UseCase(error.into()))?;
        Ok(found.map(|key| Caller::new(key, address, self.program)))
    }

    /// The caller who opened the link that the program printed on its terminal.
    pub fn of_terminal(&self, address: IpAddr) -> Caller {
        Caller::of_terminal(self.terminal, address, self.program)
    }

    /// Writes to the log how many wrong keys were presented since the last time.
    pub(crate) fn log_wrong(&self) {
        log_failed_logins(LoginsOf::OfAdminApi, &self.unlogged.take(), self.program);
    }

    fn wrong(&self, refused: Refused, address: IpAddr) -> Refused {
        self.unlogged.add(Some(address));
        refused
    }

    fn is_known(&self, digest: &KeyDigest) -> bool {
        self.known().contains_key(digest)
    }

    /// Notes the use of a key in the index, in the background and once an hour.
    fn note_use(&self, key: &AdminKey) {
        let now = (self.clock)();
        let hour = hour_of_use(now);
        let mut known = self.known();
        if known.get(&key.sha256) == Some(&hour) {
            return;
        }
        // Keys that were revoked meanwhile make it grow.
        if known.len() >= 2 * MAX_ADMIN_KEYS {
            known.clear();
        }
        known.insert(key.sha256, hour);
        drop(known);
        let (index, key) = (Arc::clone(&self.index), key.clone());
        tokio::spawn(async move {
            if let Err(error) = admin_key::note_use(&*index, &key, now).await {
                tracing::debug!(%error, key = %key.name, "the use of an admin key is not noted");
            }
        });
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<KeyDigest, UnixMillis>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
