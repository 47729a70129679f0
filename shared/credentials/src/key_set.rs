//! The keys of a service, and how one replaces another.
//!
//! Several programs read the same keys and do not learn of a change at the same moment. So a new
//! key does not sign before the `lead` has passed, in which all of them come to know it, and the
//! earlier one verifies for the `overlap` after that, in which its tokens expire.

use std::time::Duration;

use push_model::time::UnixMillis;
use serde_json::{Value, json};

use crate::{issue_error::IssueError, key::Key};

/// The most keys of a set. Each rotation adds one, and drops those that verify nothing any more.
pub const MAX_KEYS: usize = 16;

/// The keys of a service.
#[derive(Debug, Clone)]
pub struct KeySet {
    /// In the order in which they were made, in which each one replaces those before it.
    keys: Vec<Key>,
}

/// The times of a key rotation.
#[derive(Debug, Clone, Copy)]
pub struct Rotation {
    /// The time that all programs have to read the new key before it signs.
    pub lead: Duration,
    /// The time after that for which tokens of earlier keys are accepted.
    pub overlap: Duration,
}

/// The reasons why a key was not replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RotationError {
    /// The set is full of keys that still verify.
    #[error(
        "there are {MAX_KEYS} keys already whose tokens are accepted: wait until one expires, or end them all with `--lead 0s --overlap 0s`"
    )]
    Full,
    /// No key could be made.
    #[error("no key can be made")]
    Make(#[source] IssueError),
}

impl KeySet {
    /// Makes a set with one new key, which signs immediately.
    ///
    /// # Errors
    /// If the operating system gives no random numbers.
    pub fn generate(now: UnixMillis) -> Result<Self, IssueError> {
        Ok(Self { keys: vec![Key::generate(now, now)?] })
    }

    /// These keys, in the order in which they were made; none if there are none, too many, or one
    /// twice.
    pub(crate) fn new(keys: Vec<Key>) -> Option<Self> {
        let mut ids: Vec<_> = keys.iter().map(Key::kid).collect();
        ids.sort_unstable();
        ids.dedup();
        let valid = (1..=MAX_KEYS).contains(&keys.len()) && ids.len() == keys.len();
        valid.then_some(Self { keys })
    }

    /// The keys, in the order in which they were made.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The key that signs at this time: of those that have begun to, the one that was made last. A
    /// key that begins later than one that replaced it never signs.
    ///
    /// # Errors
    /// If no key has begun to sign, or all that have verify nothing any more.
    pub fn signing(&self, now: UnixMillis) -> Result<&Key, IssueError> {
        let signs = |key: &&Key| key.signs_from <= now && key.verifies_at(now);
        self.keys.iter().rfind(signs).ok_or(IssueError::NoKey)
    }

    /// The key of this id, if its tokens are accepted at this time. A connection that logged in with
    /// one of them must end when there is none any more: its key was stolen, or replaced long ago.
    pub fn verifying(&self, kid: &str, now: UnixMillis) -> Option<&Key> {
        self.keys.iter().find(|key| key.kid() == kid && key.verifies_at(now))
    }

    /// Adds a key, lets the earlier ones end, and drops those that verify nothing any more.
    ///
    /// # Errors
    /// If the set is full, or no key can be made. It is then as it was.
    pub fn rotate(&mut self, rotation: Rotation, now: UnixMillis) -> Result<(), RotationError> {
        let signs_from = now.plus(rotation.lead);
        let end = signs_from.plus(rotation.overlap);
        let mut keys = self.keys.clone();
        for key in &mut keys {
            // A later end that an earlier rotation promised is shortened: so a rotation without
            // overlap ends every earlier key, which is what a stolen key file needs.
            key.verifies_until = Some(key.verifies_until.map_or(end, |until| until.min(end)));
        }
        keys.retain(|key| key.verifies_at(now));
        if keys.len() >= MAX_KEYS {
            return Err(RotationError::Full);
        }
        keys.push(Key::generate(now, signs_from).map_err(RotationError::Make)?);
        self.keys = keys;
        Ok(())
    }

    /// The public parts of the keys whose tokens are accepted at this time, as a JSON Web Key Set
    /// (RFC 7517).
    pub fn jwks(&self, now: UnixMillis) -> Value {
        let accepted = self.keys.iter().filter(|key| key.verifies_at(now));
        json!({ "keys": accepted.map(|key| json!(key.jwk())).collect::<Vec<_>>() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_new_key_signs_after_the_lead_and_the_earlier_one_verifies_for_the_overlap() {
        let mut set = KeySet::generate(UnixMillis(0)).unwrap();
        let old = set.keys()[0].kid().to_owned();
        let rotation = Rotation { lead: SECOND, overlap: 10 * SECOND };
        set.rotate(rotation, UnixMillis(5_000)).unwrap();
        let new = set.keys()[1].kid().to_owned();
        let signing = |at| set.signing(UnixMillis(at)).unwrap().kid().to_owned();
        assert_eq!((signing(5_999), signing(6_000)), (old.clone(), new.clone()));
        let verifies = |kid: &str, at| set.verifying(kid, UnixMillis(at)).is_some();
        assert!(verifies(&new, 5_000), "known before it signs");
        assert!(verifies(&old, 15_999) && !verifies(&old, 16_000));
        assert!(verifies(&new, u64::MAX));
    }

    #[test]
    fn a_rotation_drops_what_verifies_nothing_any_more() {
        let mut set = KeySet::generate(UnixMillis(0)).unwrap();
        let rotation = Rotation { lead: SECOND, overlap: SECOND };
        set.rotate(rotation, UnixMillis(0)).unwrap();
        set.rotate(rotation, UnixMillis(1_999)).unwrap();
        assert_eq!(set.keys().len(), 3);
        set.rotate(rotation, UnixMillis(2_000)).unwrap();
        assert_eq!(set.keys().len(), 3, "the first one ended at 2,000");
    }

    #[test]
    fn a_rotation_without_lead_and_overlap_leaves_only_the_new_key() {
        let mut set = KeySet::generate(UnixMillis(0)).unwrap();
        set.rotate(Rotation { lead: SECOND, overlap: 100 * SECOND }, UnixMillis(0)).unwrap();
        let stolen: Vec<_> = set.keys().iter().map(|key| key.kid().to_owned()).collect();
        let now = UnixMillis(500);
        set.rotate(Rotation { lead: Duration::ZERO, overlap: Duration::ZERO }, now).unwrap();
        assert_eq!(set.keys().len(), 1);
        assert!(stolen.iter().all(|kid| set.verifying(kid, now).is_none()));
        assert!(set.signing(now).is_ok());
    }

    #[test]
    fn a_key_that_was_replaced_before_it_began_never_signs() {
        let mut set = KeySet::generate(UnixMillis(0)).unwrap();
        let overlap = 1000 * SECOND;
        set.rotate(Rotation { lead: 60 * SECOND, overlap }, UnixMillis(0)).unwrap();
        set.rotate(Rotation { lead: Duration::ZERO, overlap }, UnixMillis(30_000)).unwrap();
        let last = set.keys()[2].kid().to_owned();
        for at in [30_000, 60_000, 61_000, 1_030_000, 2_000_000] {
            assert_eq!(set.signing(UnixMillis(at)).unwrap().kid(), last, "{at}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Leads and overlaps of every relation to each other, and times between them.
        #[test]
        fn whatever_the_rotations_some_key_signs_and_in_the_end_the_last(
            rotations in prop::collection::vec((0..9_u64, 0..9_u64, 0..9_u64), 1..8),
        ) {
            let mut set = KeySet::generate(UnixMillis(0)).unwrap();
            let (mut now, mut begins) = (0, 0);
            for (wait, lead, overlap) in rotations {
                now += wait;
                begins = now + lead;
                let [lead, overlap] = [lead, overlap].map(Duration::from_millis);
                set.rotate(Rotation { lead, overlap }, UnixMillis(now)).unwrap();
                for at in now..now + 40 {
                    let signing = set.signing(UnixMillis(at));
                    prop_assert!(signing.is_ok(), "no key signs at {at}: {set:?}");
                }
            }
            let last = set.keys().last().unwrap().kid();
            for at in begins..begins + 40 {
                prop_assert_eq!(set.signing(UnixMillis(at)).unwrap().kid(), last);
            }
        }
    }

    #[test]
    fn a_set_that_is_full_of_valid_keys_takes_no_other() {
        let mut set = KeySet::generate(UnixMillis(0)).unwrap();
        let rotation = Rotation { lead: SECOND, overlap: SECOND };
        for _ in 1..MAX_KEYS {
            set.rotate(rotation, UnixMillis(0)).unwrap();
        }
        assert_eq!(set.rotate(rotation, UnixMillis(0)), Err(RotationError::Full));
        assert_eq!(set.keys().len(), MAX_KEYS);
        let at_once = Rotation { lead: Duration::ZERO, overlap: Duration::ZERO };
        set.rotate(at_once, UnixMillis(0)).unwrap();
        assert_eq!(set.keys().len(), 1, "a theft can be answered at any time");
    }

    #[test]
    fn a_set_whose_last_key_has_ended_signs_nothing() {
        let mut key = Key::generate(UnixMillis(0), UnixMillis(10)).unwrap();
        key.verifies_until = Some(UnixMillis(20));
        let set = KeySet::new(vec![key]).unwrap();
        let signs = |at| set.signing(UnixMillis(at)).is_ok();
        assert_eq!([signs(9), signs(10), signs(19), signs(20)], [false, true, true, false]);
    }
}
