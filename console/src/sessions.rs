//! Who is signed in: sessions in the memory of this program, and links that sign in once.
//!
//! A session is 256 random bits, of which only a digest is kept, so a copy of the memory opens none. It ends
//! [`LIFE`] after its last request, at the latest [`LONGEST`] after it began, when its key is revoked, when
//! someone signs out, and when the program stops.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use push_model::secret::Secret;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

/// The life of a session after its last request.
pub(crate) const LIFE: Duration = Duration::from_mins(30);
/// The longest life of a session.
const LONGEST: Duration = Duration::from_hours(12);
/// The time for which a link signs in.
const LINK_LIFE: Duration = Duration::from_mins(30);
/// The most sessions of one key; beyond, its own that was used longest ago ends.
const MOST_OF_HOLDER: usize = 16;
/// The most sessions; beyond, the one that was used longest ago ends.
const MOST: usize = 1024;

type TokenDigest = [u8; 32];

/// The sessions of one program.
#[derive(Debug)]
pub(crate) struct Sessions<K>(Mutex<State<K>>);

#[derive(Debug)]
struct State<K> {
    sessions: HashMap<TokenDigest, Session<K>>,
    /// The link that signs in once, and until when.
    link: Option<(TokenDigest, Instant)>,
}

#[derive(Debug)]
struct Session<K> {
    holder: K,
    begun: Instant,
    used: Instant,
}

impl<K> Default for Sessions<K> {
    fn default() -> Self {
        Self(Mutex::new(State { sessions: HashMap::new(), link: None }))
    }
}

impl<K: Clone + PartialEq> Sessions<K> {
    /// Begins a session, and returns its token.
    pub(crate) fn begin(&self, holder: K, now: Instant) -> String {
        let token = Secret::generate().expose().to_owned();
        let mut state = self.lock();
        state.sessions.retain(|_, session| session.is_open(now));
        let own = state.sessions.values().filter(|session| session.holder == holder).count();
        let is_full = state.sessions.len() >= MOST;
        if is_full || own >= MOST_OF_HOLDER {
            let others = state.sessions.iter();
            let same = others.filter(|(_, session)| is_full || session.holder == holder);
            let oldest = same.min_by_key(|(_, session)| session.used).map(|(digest, _)| *digest);
            state.sessions.retain(|digest, _| Some(*digest) != oldest);
        }
        state.sessions.insert(digest(&token), Session { holder, begun: now, used: now });
        token
    }

    /// Returns the holder of a session that is open, which lives on from now.
    pub(crate) fn holder(&self, token: &str, now: Instant) -> Option<K> {
        let mut state = self.lock();
        let session = state.sessions.get_mut(&digest(token))?;
        if !session.is_open(now) {
            return None;
        }
        session.used = now;
        Some(session.holder.clone())
    }

    /// Ends a session.
    pub(crate) fn end(&self, token: &str) {
        self.lock().sessions.remove(&digest(token));
    }

    /// Makes the token of a link that signs in once. An earlier one is void.
    pub(crate) fn make_link(&self, now: Instant) -> String {
        let token = Secret::generate().expose().to_owned();
        self.lock().link = Some((digest(&token), now + LINK_LIFE));
        token
    }

    /// Takes the token of a link. Returns true for the first that has it, in time.
    pub(crate) fn take_link(&self, token: &str, now: Instant) -> bool {
        let mut state = self.lock();
        let known = state.link.is_some_and(|(known, until)| known == digest(token) && now < until);
        if known {
            state.link = None;
        }
        known
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Session<K> {
    fn is_open(&self, now: Instant) -> bool {
        now < self.used + LIFE && now < self.begun + LONGEST
    }
}

/// Digests of tokens are compared: how long that takes tells nothing of a token.
fn digest(token: &str) -> TokenDigest {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_session_lives_on_while_it_is_used_but_not_for_ever() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let token = sessions.begin("ann", start);
        let mut now = start;
        while now < start + LONGEST - LIFE {
            now += LIFE - Duration::from_secs(1);
            assert_eq!(sessions.holder(&token, now), Some("ann"));
        }
        assert_eq!(sessions.holder(&token, start + LONGEST), None);
        let unused = sessions.begin("bob", start);
        assert_eq!(sessions.holder(&unused, start + LIFE), None);
        assert_eq!(sessions.holder("guess", start), None);
    }

    #[tokio::test(start_paused = true)]
    async fn signing_out_ends_a_session_and_a_full_table_the_one_that_rested_longest() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let tokens: Vec<_> = (0..=MOST)
            .map(|n| sessions.begin(n, start + Duration::from_millis(n as u64)))
            .collect();
        let now = start + Duration::from_secs(10);
        assert_eq!(sessions.holder(&tokens[0], now), None);
        assert_eq!(sessions.holder(&tokens[1], now), Some(1));
        sessions.end(&tokens[1]);
        assert_eq!(sessions.holder(&tokens[1], now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_who_signs_in_often_ends_no_session_of_others() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let other = sessions.begin("bob", start);
        let now = start + Duration::from_secs(1);
        let first = sessions.begin("ann", now);
        for _ in 0..2 * MOST {
            sessions.begin("ann", now + Duration::from_secs(1));
        }
        assert_eq!(sessions.holder(&other, now), Some("bob"));
        assert_eq!(sessions.holder(&first, now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_signs_in_once_and_in_time() {
        let (sessions, start) = (Sessions::<()>::default(), Instant::now());
        let void = sessions.make_link(start);
        let link = sessions.make_link(start);
        assert!(!sessions.take_link(&void, start) && !sessions.take_link("guess", start));
        assert!(sessions.take_link(&link, start) && !sessions.take_link(&link, start));
        let late = sessions.make_link(start);
        assert!(!sessions.take_link(&late, start + LINK_LIFE));
    }
}
