//! The uses of an app's secrets: when each was last used, and how many logins failed.
//!
//! Both are kept in memory, a few bytes for each secret of a cached app, and written about once a minute
//! (`handlers::login_report`): last uses to the index, failed logins to the log. Counts that a process has
//! not written when it dies, or when an app leaves the cache, are lost.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use push_boot::failed_logins::{FailedLoginCount, FailedLogins};
use push_model::{
    app::{App, SecretInfo, VerifiedSecret},
    time::UnixMillis,
};

/// The least time between two uses that are noted. All requests of an app write to the same place, which
/// would move between processors with each of them.
const RESOLUTION: u64 = 1000;

/// The uses of the secrets of one app.
#[derive(Debug)]
pub(crate) struct Activity {
    /// In the order of [`App::all_secrets`].
    secrets: Box<[LastUse]>,
    /// A secret was used since the last uses were written.
    used: AtomicBool,
    /// Shared with the records of the same app that are read later.
    failed_logins: Arc<FailedLoginCount>,
}

#[derive(Debug)]
struct LastUse {
    name: Box<str>,
    /// Two secrets with one name, made one after the other, are told apart by this.
    made_at: Option<UnixMillis>,
    /// Unix milliseconds; 0 if it was not used in this process.
    used_at: AtomicU64,
}

impl LastUse {
    fn is_of(&self, secret: &SecretInfo<'_>) -> bool {
        *self.name == *secret.name && self.made_at == secret.made_at
    }
}

impl Activity {
    /// Makes the activity for a record that was just read. The uses of secrets that it still has are kept.
    pub(super) fn new(app: &App, before: Option<&Self>) -> Self {
        let used_before = |secret: &SecretInfo<'_>| {
            let last_use = before?.secrets.iter().find(|last_use| last_use.is_of(secret))?;
            Some(last_use.used_at.load(Ordering::Relaxed))
        };
        let secrets = app.all_secrets().map(|secret| LastUse {
            name: secret.name.into(),
            made_at: secret.made_at,
            used_at: AtomicU64::new(used_before(&secret).unwrap_or_default()),
        });
        Self {
            secrets: secrets.collect(),
            used: AtomicBool::new(before.is_some_and(|b| b.used.load(Ordering::Relaxed))),
            failed_logins: before.map(|b| Arc::clone(&b.failed_logins)).unwrap_or_default(),
        }
    }

    /// Returns true if these are the secrets of a record.
    pub(super) fn is_of(&self, app: &App) -> bool {
        self.secrets.len() == app.all_secrets().count()
            && self.secrets.iter().zip(app.all_secrets()).all(|(kept, info)| kept.is_of(&info))
    }

    /// Notes that a secret was used.
    pub(crate) fn used(&self, secret: VerifiedSecret, now: UnixMillis) {
        let Some(LastUse { used_at, .. }) = self.secrets.get(secret.position) else { return };
        if now.0 >= used_at.load(Ordering::Relaxed).saturating_add(RESOLUTION) {
            used_at.store(now.0, Ordering::Relaxed);
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Counts a request with a wrong secret, or one without the scope of the call.
    pub(crate) fn failed_login(&self, from: IpAddr) {
        self.failed_logins.add(Some(from));
    }

    /// The last uses to write, unless no secret was used since they were written.
    pub(crate) fn take_uses(&self) -> Option<UnwrittenUses<'_>> {
        let uses = self.secrets.iter().map(|LastUse { name, used_at, .. }| {
            let used_at = used_at.load(Ordering::Relaxed);
            (&**name, (used_at > 0).then_some(UnixMillis(used_at)))
        });
        let used = self.used.swap(false, Ordering::Relaxed);
        used.then(|| UnwrittenUses { all: uses.collect(), written: false, used: &self.used })
    }

    /// Takes the logins that failed since the last call.
    pub(crate) fn take_failed_logins(&self) -> FailedLogins {
        self.failed_logins.take()
    }
}

/// Last uses that were taken to be written. If it is dropped before they are, because the index did not
/// answer or the service stops meanwhile, they are taken again the next time.
#[derive(Debug)]
pub(crate) struct UnwrittenUses<'a> {
    /// The name of each secret, and when it was last used.
    pub(crate) all: Vec<(&'a str, Option<UnixMillis>)>,
    written: bool,
    used: &'a AtomicBool,
}

impl UnwrittenUses<'_> {
    pub(crate) fn written(mut self) {
        self.written = true;
    }
}

impl Drop for UnwrittenUses<'_> {
    fn drop(&mut self) {
        if !self.written {
            self.used.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use push_model::secret::Secret;

    use super::*;

    #[test]
    fn uses_whose_write_was_given_up_are_written_the_next_time() {
        let secret = Secret::generate();
        let app = App::new("news".parse().unwrap(), &secret, UnixMillis(1));
        let activity = Activity::new(&app, None);
        assert!(activity.take_uses().is_none());
        let used = app.verify(secret.expose().as_bytes(), UnixMillis(2)).unwrap();
        activity.used(used, UnixMillis(5000));
        let given_up = activity.take_uses().unwrap();
        assert_eq!(given_up.all, [("default", Some(UnixMillis(5000)))]);
        drop(given_up);
        activity.take_uses().unwrap().written();
        assert!(activity.take_uses().is_none());
    }
}
