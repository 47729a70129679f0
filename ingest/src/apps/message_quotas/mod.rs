//! Counts the waiting messages and the ledger entries of each app, for its quotas.
//!
//! The usage of an app is counted in the index ([`push_model::usage`]). This process adds what it accepted
//! and learns what others accepted and closed about once a second (`handlers::usage_sync`), in the
//! background. So a push costs a short lock; only the first one, also after the app lay idle, waits for
//! the index. What other processes accept in that second is not known, so together they may exceed a
//! quota by it.
//!
//! A push that is on its way to the queue has a place. It is counted when the queue has confirmed it,
//! also if its client is gone, and its place is given back if the queue did not. While the index does
//! not answer, the counts from before are used, with what this process accepted since.

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use push_model::{
    app::{App, AppKey},
    ledger::Retention,
    time::UnixMillis,
    usage::{Usage, UsageCounts, UsageHour, UsageKind},
};

use tokio::time::Instant;

use crate::{allowance::QuotaUsedUp, settings::AppSettings};

/// The time after which a push is worth another try while too many messages wait, in seconds.
const RETRY_WAITING: u64 = 5;
/// The longest time after which an app without room in the ledger is told to try again, in seconds.
const LONGEST_RETRY: u64 = 3600;

/// The most messages of an app that may wait, and the most ledger entries that it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MessageQuotas {
    waiting: Option<NonZeroU32>,
    entries: Option<NonZeroU32>,
}

impl MessageQuotas {
    /// The quotas of an app; none if it has neither.
    pub(super) fn of(app: &App, settings: &AppSettings) -> Option<Self> {
        let waiting = app.max_waiting.or_default(settings.max_waiting);
        let entries = app.max_ledger_entries.or_default(settings.max_ledger_entries);
        (waiting.is_some() || entries.is_some()).then_some(Self { waiting, entries })
    }
}

/// The apps that have something to write or to learn.
#[derive(Debug, Default)]
pub(crate) struct UsageToWrite(Mutex<Vec<Arc<MessageUsage>>>);

impl UsageToWrite {
    pub(crate) fn take(&self) -> Vec<Arc<MessageUsage>> {
        let apps = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        apps.iter().for_each(|usage| usage.change(|state| state.is_listed = false));
        apps
    }
}

/// The usage of one app, as this process knows it.
#[derive(Debug)]
pub(crate) struct MessageUsage {
    pub(crate) app: AppKey,
    to_write: Arc<UsageToWrite>,
    state: Mutex<KnownUsage>,
    /// The right to ask the index.
    asking: tokio::sync::Mutex<()>,
}

/// Counts of messages and of early recalls.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    messages: u64,
    early_recalls: u64,
}

impl Counts {
    fn of(&mut self, kind: UsageKind) -> &mut u64 {
        match kind {
            UsageKind::EarlyRecall => &mut self.early_recalls,
            _ => &mut self.messages,
        }
    }
}

#[derive(Debug, Default)]
struct KnownUsage {
    /// The time at which the index was asked last, whether it answered or not.
    asked_at: Option<Instant>,
    /// The last answer of the index.
    known: Option<Usage>,
    /// Messages that were accepted and are not in `known`.
    since: Counts,
    /// Messages that have a place.
    in_work: Counts,
    /// Messages that were accepted and are not written to the index.
    unwritten: BTreeMap<UsageHour, UsageCounts>,
    /// It is among the apps to write.
    is_listed: bool,
}

/// Places for messages, given back unless they are [confirmed](Self::confirmed).
#[derive(Debug)]
pub(crate) struct MessagePlaces {
    usage: Arc<MessageUsage>,
    /// The counts of one request span one or two hours and kinds.
    hours: Vec<(UsageHour, UsageCounts)>,
}

impl MessageUsage {
    pub(super) fn new(app: AppKey, to_write: Arc<UsageToWrite>) -> Self {
        let (state, asking) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { app, to_write, state, asking }
    }

    /// Returns true if the index was asked within this time. An app that lay idle is asked for again: others may
    /// have accepted or closed many of its messages.
    pub(crate) fn is_fresh(&self, fresh: Duration) -> bool {
        self.change(|state| state.asked_at).is_some_and(|at| at.elapsed() < fresh)
    }

    /// A place for a message, if the quotas have one left.
    pub(crate) fn place(
        self: &Arc<Self>,
        quotas: MessageQuotas,
        kind: UsageKind,
        now: UnixMillis,
        expires_at: UnixMillis,
        retention: Retention,
    ) -> Result<Box<MessagePlaces>, QuotaUsedUp> {
        let hour = UsageHour::of(kind, now);
        let counts = UsageCounts { accepted: 1, ..UsageCounts::new(&hour, expires_at, retention) };
        let result = self.change(|state| {
            state.check(quotas, kind, now)?;
            *state.in_work.of(kind) += 1;
            Ok(())
        });
        if result.is_err() {
            // So that it is learnt when there is room again.
            self.list();
        }
        let usage = Arc::clone(self);
        result.map(|()| Box::new(MessagePlaces { usage, hours: vec![(hour, counts)] }))
    }

    /// Writes what was accepted to the index, with `write`, and learns what the app uses now. Of several
    /// callers, one asks at a time. If another caller has asked after `since`, nothing is asked. An error
    /// that leaves open whether it was written counts as written: no app is charged twice.
    pub(crate) async fn exchange<E>(
        self: &Arc<Self>,
        since: Option<Instant>,
        now: impl Fn() -> UnixMillis,
        write: impl AsyncFnOnce(&[(UsageHour, UsageCounts)]) -> Result<Vec<(UsageHour, UsageCounts)>, E>,
        was_not_written: impl FnOnce(&E) -> bool,
    ) -> Result<(), E> {
        let _asking = self.asking.lock().await;
        if since.is_some() && self.change(|state| state.asked_at) >= since {
            return Ok(());
        }
        let (more, before) =
            self.change(|state| (std::mem::take(&mut state.unwritten), state.since));
        let more: Vec<_> = more.into_iter().collect();
        let answer = write(&more).await;
        self.change(|state| state.asked_at = Some(Instant::now()));
        match answer {
            Ok(hours) => {
                let known = Usage::of(&hours, now());
                self.change(|state| {
                    state.known = Some(known);
                    state.since.messages -= before.messages;
                    state.since.early_recalls -= before.early_recalls;
                });
                Ok(())
            }
            Err(error) => {
                if was_not_written(&error) {
                    self.change(|state| {
                        for (hour, counts) in more {
                            state.unwritten.entry(hour).or_default().add(&counts);
                        }
                    });
                }
                self.list();
                Err(error)
            }
        }
    }

    /// Adds it to the apps to write.
    pub(crate) fn list(self: &Arc<Self>) {
        let was_listed = self.change(|state| std::mem::replace(&mut state.is_listed, true));
        if !was_listed {
            let mut list = self.to_write.0.lock().unwrap_or_else(PoisonError::into_inner);
            list.push(Arc::clone(self));
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut KnownUsage) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl KnownUsage {
    /// Checks that there is room for one more.
    fn check(
        &self,
        quotas: MessageQuotas,
        kind: UsageKind,
        now: UnixMillis,
    ) -> Result<(), QuotaUsedUp> {
        let known = self.known.unwrap_or_default();
        let Self { since, in_work, .. } = self;
        let entries = || {
            let until = known.first_kept_until.unwrap_or(now).since(now).as_secs();
            (until + 1).min(LONGEST_RETRY)
        };
        let used_up =
            |used: u64, most: Option<NonZeroU32>| most.filter(|most| used >= most.get().into());
        match kind {
            UsageKind::Named | UsageKind::Broadcast => {
                let own = since.messages + in_work.messages;
                if let Some(most) = used_up(known.waiting + own, quotas.waiting) {
                    let (quota, what) = ("max-waiting", "waiting messages");
                    return Err(QuotaUsedUp { quota, what, most, retry_after: RETRY_WAITING });
                }
                if let Some(most) = used_up(known.entries + own, quotas.entries) {
                    let (quota, what) = ("max-ledger-entries", "ledger entries");
                    return Err(QuotaUsedUp { quota, what, most, retry_after: entries() });
                }
            }
            UsageKind::Held | UsageKind::Settling => {}
            UsageKind::EarlyRecall => {
                let own = since.early_recalls + in_work.early_recalls;
                if let Some(most) = used_up(known.early_recalls + own, quotas.entries) {
                    let quota = "max-ledger-entries";
                    let what = "ledger entries of recalls that came before their messages";
                    return Err(QuotaUsedUp { quota, what, most, retry_after: entries() });
                }
            }
        }
        Ok(())
    }
}

/// Returns how many places these counts stand for.
fn places(counts: &UsageCounts) -> u64 {
    u64::try_from(counts.accepted).unwrap_or(0)
}

impl MessagePlaces {
    /// Adds the places of another message of the same app.
    pub(crate) fn join(&mut self, mut more: Self) {
        for (hour, counts) in more.hours.drain(..) {
            match self.hours.iter_mut().find(|(known, _)| *known == hour) {
                Some((_, known)) => known.add(&counts),
                None => self.hours.push((hour, counts)),
            }
        }
    }

    /// Counts the messages: the queue has them, or the ledger.
    pub(crate) fn confirmed(mut self) {
        let hours = std::mem::take(&mut self.hours);
        self.usage.change(|state| {
            for (hour, counts) in hours {
                *state.in_work.of(hour.kind) -= places(&counts);
                *state.since.of(hour.kind) += places(&counts);
                state.unwritten.entry(hour).or_default().add(&counts);
            }
        });
        self.usage.list();
    }
}

impl Drop for MessagePlaces {
    fn drop(&mut self) {
        for (hour, counts) in &self.hours {
            self.usage.change(|state| *state.in_work.of(hour.kind) -= places(counts));
        }
    }
}

#[cfg(test)]
mod tests;
