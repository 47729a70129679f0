//! Remembers the pushes with an `Idempotency-Key` that this process accepted recently. So a key
//! that is used again for another body is refused even before a worker has begun the first push;
//! from then on the ledger knows it.
//!
//! An app's pushes are forgotten after half an hour to an hour, in two halves. An app with more than
//! [`MOST_OF_HALF`] keys in half an hour forgets earlier. At most [`MOST`] pushes are remembered over
//! all apps. When that is used up, the apps that hold most lose their older half first, so one app with
//! many keys does not displace those of others.

use std::{
    collections::HashMap,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use push_model::{
    fingerprint::Fingerprint,
    ids::{AppId, MessageId},
};
use tokio::time::Instant;

/// The most pushes of all apps that are remembered: with the tables about 3 MB.
const MOST: usize = 65_536;
/// The most pushes of one half of an app.
const MOST_OF_HALF: usize = MOST / 8;
/// The time for which a half is added to.
const HALF_AGE: Duration = Duration::from_secs(30 * 60);

/// The recent pushes with keys, of all apps.
#[derive(Debug, Default)]
pub(crate) struct RecentKeys(Mutex<Apps>);

#[derive(Debug, Default)]
struct Apps {
    by_id: HashMap<AppId, Halves>,
    /// The number of pushes that they have together.
    held: usize,
}

#[derive(Debug)]
struct Halves {
    young: HashMap<MessageId, Fingerprint>,
    old: HashMap<MessageId, Fingerprint>,
    /// The time at which the young one began.
    since: Instant,
}

impl Halves {
    fn held(&self) -> usize {
        self.young.len() + self.old.len()
    }

    fn get(&self, message: &MessageId) -> Option<Fingerprint> {
        self.young.get(message).or_else(|| self.old.get(message)).copied()
    }

    /// Forgets what is too old by now.
    fn age(&mut self, now: Instant) {
        let age = now.saturating_duration_since(self.since);
        if age >= HALF_AGE * 2 {
            self.young.clear();
        }
        if age >= HALF_AGE || self.young.len() >= MOST_OF_HALF {
            self.old = mem::take(&mut self.young);
            self.since = now;
        }
    }
}

impl RecentKeys {
    /// Remembers a push, unless another body is remembered for its id. Returns whether it was
    /// remembered.
    pub(crate) fn remember(
        &self,
        app: &AppId,
        message: MessageId,
        fingerprint: Fingerprint,
        now: Instant,
    ) -> bool {
        let mut apps = self.lock();
        if let Some(known) = apps.of(app, now).and_then(|known| known.get(&message)) {
            return known == fingerprint;
        }
        let halves = apps.by_id.entry(app.clone()).or_insert_with(|| Halves {
            young: HashMap::new(),
            old: HashMap::new(),
            since: now,
        });
        halves.young.insert(message, fingerprint);
        apps.held += 1;
        if apps.held > MOST {
            apps.make_room(now);
        }
        true
    }

    /// Returns true if another body is remembered for the id of a push.
    pub(crate) fn conflicts(
        &self,
        app: &AppId,
        message: &MessageId,
        fingerprint: Fingerprint,
        now: Instant,
    ) -> bool {
        let known = self.lock().of(app, now).and_then(|known| known.get(message));
        known.is_some_and(|known| known != fingerprint)
    }

    fn lock(&self) -> MutexGuard<'_, Apps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Apps {
    /// The pushes of an app that are not too old.
    fn of(&mut self, app: &AppId, now: Instant) -> Option<&Halves> {
        let known = self.by_id.get_mut(app)?;
        let before = known.held();
        known.age(now);
        self.held -= before - known.held();
        Some(known)
    }

    /// Forgets what is too old, and then the older halves of the apps that hold most, until a
    /// quarter of the room is free: so this is seldom needed.
    fn make_room(&mut self, now: Instant) {
        let ids: Vec<AppId> = self.by_id.keys().cloned().collect();
        for app in &ids {
            self.of(app, now);
        }
        self.by_id.retain(|_, known| known.held() > 0);
        let mut largest: Vec<&mut Halves> = self.by_id.values_mut().collect();
        largest.sort_unstable_by_key(|known| std::cmp::Reverse(known.held()));
        for known in largest {
            if self.held <= MOST / 4 * 3 {
                break;
            }
            let half = if known.old.is_empty() { &mut known.young } else { &mut known.old };
            self.held -= mem::take(half).len();
        }
        self.by_id.retain(|_, known| known.held() > 0);
    }
}

#[cfg(test)]
mod tests {
    use push_model::id_key::IdKey;

    use super::*;

    fn app(name: &str) -> AppId {
        name.parse().unwrap()
    }

    fn id(app: &AppId, number: u32) -> MessageId {
        MessageId::derive(app, &IdKey::from([0; 16]), &number.to_be_bytes())
    }

    fn fingerprint(number: u32) -> Fingerprint {
        Fingerprint::of_nonce(u64::from(number) << 32).unwrap()
    }

    #[test]
    fn a_push_is_remembered_with_its_body_for_a_while() {
        let (keys, app, now) = (RecentKeys::default(), app("a"), Instant::now());
        let (first, one, other) = (id(&app, 1), fingerprint(1), fingerprint(2));
        assert!(!keys.conflicts(&app, &first, other, now));
        assert!(keys.remember(&app, first, one, now) && keys.remember(&app, first, one, now));
        assert!(!keys.remember(&app, first, other, now + HALF_AGE));
        assert!(keys.conflicts(&app, &first, other, now + HALF_AGE));
        assert!(!keys.conflicts(&app, &first, one, now + HALF_AGE));
        assert!(keys.remember(&app, first, other, now + HALF_AGE * 4), "that was long ago");
        assert_eq!(keys.lock().held, 1);
    }

    #[test]
    fn an_app_with_many_keys_forgets_its_own() {
        let (keys, now) = (RecentKeys::default(), Instant::now());
        let (quiet, [loud, louder]) = (app("quiet"), ["loud", "louder"].map(app));
        assert!(keys.remember(&quiet, id(&quiet, 1), fingerprint(1), now));
        let many = u32::try_from(MOST).unwrap();
        for (number, from) in (0..2 * many).zip([&loud, &louder].into_iter().cycle()) {
            assert!(keys.remember(from, id(from, number), fingerprint(7), now));
            assert!(keys.lock().held <= MOST);
        }
        for number in 0..many / 2 {
            let app = app(&format!("app-{number}"));
            assert!(keys.remember(&app, id(&app, 1), fingerprint(7), now));
        }
        assert!(keys.conflicts(&quiet, &id(&quiet, 1), fingerprint(7), now));
        let apps = keys.lock();
        assert_eq!(apps.by_id.values().map(Halves::held).sum::<usize>(), apps.held);
    }
}
