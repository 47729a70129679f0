//! Authorizations: made or fetched once for all who need them, and renewed ahead of time.
//!
//! - While one caller renews, those without a valid authorization wait for it; those with one that is
//!   merely old use it.
//! - A renewal that fails is not tried again before a pause, which grows; callers get the same answer
//!   until then.
//! - Times are counted from the moment of renewal with a clock that does not jump. A wall clock that is
//!   set back or forward renews nothing.
//! - A provider that refuses an authorization makes it renewed once ([`Bearers::refuse`]), and again only
//!   after [`REFUSED_AGAIN`]. Meanwhile a refusal beside requests that are accepted is the fault of its own
//!   request.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use push_model::time::UnixMillis;
use push_providers::{Bearer, verdict::AccountFault};
use quick_cache::sync::Cache;
use tokio::{sync::Mutex as Turn, time::Instant};

/// The most authorizations of an account: Web Push needs one for each origin of its endpoints.
const MOST: usize = 128;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The shortest time between two renewals that a provider's refusal causes.
const REFUSED_AGAIN: Duration = Duration::from_secs(60);
/// The time for which an accepted request shows that the account works.
const LATELY: Duration = Duration::from_secs(5);
/// The longest life that is believed.
const LONGEST_LIFE: Duration = Duration::from_hours(24);

/// The authorizations of an account, by audience.
pub(super) struct Bearers(Cache<String, Arc<Slot>>);

#[derive(Default)]
struct Slot {
    /// Held by the caller who renews.
    renewing: Turn<()>,
    state: Mutex<State>,
}

#[derive(Default, Clone)]
struct State {
    current: Option<Current>,
    failure: Option<Failure>,
    refused_at: Option<Instant>,
    accepted_at: Option<Instant>,
}

/// What follows from a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A new authorization will be made for the next request.
    Renew,
    /// Other requests are accepted: it is the fault of this one.
    Alone,
    /// The account does not work.
    Account,
}

#[derive(Clone)]
struct Current {
    bearer: Bearer,
    renew_at: Instant,
    ends_at: Instant,
}

#[derive(Clone, Copy)]
struct Failure {
    fault: AccountFault,
    failures: u32,
    again_at: Instant,
}

impl Bearers {
    pub(super) fn new() -> Self {
        Self(Cache::new(MOST))
    }

    /// Returns the authorization for an audience. `renew` makes a new one; it is called by one caller at a
    /// time.
    pub(super) async fn of(
        &self,
        audience: &str,
        now: UnixMillis,
        renew: impl AsyncFnOnce() -> Result<Bearer, AccountFault>,
    ) -> Result<Bearer, AccountFault> {
        let slot = self.slot(audience);
        if let Some(answer) = slot.state().usable(Instant::now(), Wanted::Fresh) {
            return answer;
        }
        let turn = match slot.renewing.try_lock() {
            Ok(turn) => turn,
            Err(_) => {
                if let Some(answer) = slot.state().usable(Instant::now(), Wanted::Valid) {
                    return answer;
                }
                slot.renewing.lock().await
            }
        };
        if let Some(answer) = slot.state().usable(Instant::now(), Wanted::Fresh) {
            return answer;
        }
        let renewed = renew().await;
        let answer = slot.state().note(renewed, now, Instant::now());
        drop(turn);
        answer
    }

    /// Notes that the provider refused this authorization.
    pub(super) fn refuse(&self, audience: &str, refused: &Bearer) -> Refusal {
        self.slot(audience).state().refuse(refused, Instant::now())
    }

    /// Notes that the provider accepted a request.
    pub(super) fn accept(&self, audience: &str) {
        self.slot(audience).state().accepted_at = Some(Instant::now());
    }

    fn slot(&self, audience: &str) -> Arc<Slot> {
        let new = || Ok::<_, std::convert::Infallible>(Arc::default());
        match self.0.get_or_insert_with(audience, new) {
            Ok(slot) => slot,
            Err(never) => match never {},
        }
    }
}

impl Slot {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The age of the authorization that a caller accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// One that is not to be renewed yet.
    Fresh,
    /// One that the provider accepts.
    Valid,
}

impl State {
    /// Returns what a caller can use without a renewal.
    fn usable(&self, now: Instant, wanted: Wanted) -> Option<Result<Bearer, AccountFault>> {
        let valid = self.current.as_ref().filter(|current| now < current.ends_at);
        let failure = self.failure.filter(|failure| now < failure.again_at);
        match valid {
            // While a renewal is not to be tried again, the old one serves as long as it is valid.
            Some(current)
                if now < current.renew_at || wanted == Wanted::Valid || failure.is_some() =>
            {
                Some(Ok(current.bearer.clone()))
            }
            _ => failure.map(|failure| Err(failure.fault)),
        }
    }

    /// Takes the result of a renewal.
    fn note(
        &mut self,
        renewed: Result<Bearer, AccountFault>,
        asked_at: UnixMillis,
        now: Instant,
    ) -> Result<Bearer, AccountFault> {
        match renewed {
            Ok(bearer) => {
                let after = |at: UnixMillis| {
                    let time = Duration::from_millis(at.0.saturating_sub(asked_at.0));
                    now + time.min(LONGEST_LIFE)
                };
                let (renew_at, ends_at) = (after(bearer.renew_at), after(bearer.expires_at));
                self.current = Some(Current { bearer: bearer.clone(), renew_at, ends_at });
                self.failure = None;
                Ok(bearer)
            }
            Err(fault) => {
                let failures = self.failure.map_or(0, |failure| failure.failures);
                let pause = FIRST_PAUSE.saturating_mul(1 << failures.min(8)).min(LONGEST_PAUSE);
                let wait = match fault {
                    AccountFault::Unavailable { wait } => wait.unwrap_or_default(),
                    _ => Duration::ZERO,
                };
                let again_at = now + pause.max(wait).min(LONGEST_LIFE);
                self.failure =
                    Some(Failure { fault, failures: failures.saturating_add(1), again_at });
                let valid = self.current.as_ref().filter(|current| now < current.ends_at);
                valid.map(|current| current.bearer.clone()).ok_or(fault)
            }
        }
    }

    fn refuse(&mut self, refused: &Bearer, now: Instant) -> Refusal {
        match &self.current {
            Some(current) if current.bearer.value == refused.value => {}
            // It has been renewed since.
            _ => return Refusal::Renew,
        }
        if self.refused_at.is_none_or(|at| now >= at + REFUSED_AGAIN) {
            (self.refused_at, self.current) = (Some(now), None);
            return Refusal::Renew;
        }
        let works = self.accepted_at.is_some_and(|at| now < at + LATELY);
        if works { Refusal::Alone } else { Refusal::Account }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use bytes::Bytes;

    use super::*;

    const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

    fn bearer(number: u32, seconds: u64) -> Bearer {
        Bearer {
            value: Bytes::from(number.to_string()),
            renew_at: NOW.plus_seconds(seconds / 2),
            expires_at: NOW.plus_seconds(seconds),
        }
    }

    /// A service that issues numbered authorizations which last 100 s, after 1 s each.
    #[derive(Default)]
    struct Issuer(AtomicU32);

    impl Issuer {
        async fn issue(&self) -> Result<Bearer, AccountFault> {
            let number = self.0.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(bearer(number, 100))
        }

        async fn refuse(&self) -> Result<Bearer, AccountFault> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Err(AccountFault::Unavailable { wait: None })
        }

        fn asked(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_callers_make_one_request_and_one_renews_ahead_of_time() {
        let (bearers, issuer) = (Bearers::new(), Issuer::default());
        let all = || async {
            let of = (0..1000).map(|_| bearers.of("", NOW, async || issuer.issue().await));
            futures::future::join_all(of).await
        };
        assert!(all().await.iter().all(|bearer| bearer.as_ref().unwrap().value == "0"));
        tokio::time::advance(Duration::from_secs(60)).await;
        let values = all().await;
        let old = values.iter().filter(|bearer| bearer.as_ref().unwrap().value == "0").count();
        assert_eq!((old, issuer.asked()), (999, 2), "the others do not wait for the renewal");
    }

    #[tokio::test(start_paused = true)]
    async fn renewals_that_fail_are_asked_for_ever_more_seldom() {
        let (bearers, issuer) = (Bearers::new(), Issuer::default());
        for _ in 0..600 {
            let answer = bearers.of("", NOW, async || issuer.refuse().await).await;
            assert_eq!(answer.unwrap_err(), AccountFault::Unavailable { wait: None });
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!((10..=18).contains(&issuer.asked()), "{} in ten minutes", issuer.asked());
    }

    #[tokio::test(start_paused = true)]
    async fn an_authorization_that_is_still_valid_serves_while_its_renewal_fails() {
        let (bearers, issuer) = (Bearers::new(), Issuer::default());
        bearers.of("", NOW, async || issuer.issue().await).await.unwrap();
        for second in 0..120 {
            let answer = bearers.of("", NOW, async || issuer.refuse().await).await;
            assert_eq!(answer.is_ok(), second < 100, "after {second} s");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_authorization_is_renewed_once_a_minute_at_most() {
        let (bearers, issuer) = (Bearers::new(), Issuer::default());
        let first = bearers.of("", NOW, async || issuer.issue().await).await.unwrap();
        assert_eq!(bearers.refuse("", &first), Refusal::Renew);
        let second = bearers.of("", NOW, async || issuer.issue().await).await.unwrap();
        assert_eq!(bearers.refuse("", &first), Refusal::Renew, "there is a newer one");
        assert_eq!(bearers.refuse("", &second), Refusal::Account);
        tokio::time::advance(REFUSED_AGAIN).await;
        assert_eq!(bearers.refuse("", &second), Refusal::Renew);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_beside_accepted_requests_says_nothing_of_the_account() {
        let (bearers, issuer) = (Bearers::new(), Issuer::default());
        let first = bearers.of("", NOW, async || issuer.issue().await).await.unwrap();
        assert_eq!(bearers.refuse("", &first), Refusal::Renew);
        let second = bearers.of("", NOW, async || issuer.issue().await).await.unwrap();
        bearers.accept("");
        assert_eq!(bearers.refuse("", &second), Refusal::Alone);
        tokio::time::advance(LATELY).await;
        assert_eq!(bearers.refuse("", &second), Refusal::Account);
    }
}
