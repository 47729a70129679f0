//! The memory for request bodies: a number of bytes for all requests in work, and a share of them
//! for each app.
//!
//! It is reserved as bytes arrive, never for bytes that are only announced: a client that announces
//! large bodies and sends nothing would otherwise take all of it from the others. And however many
//! bytes one app sends, the others find what is beyond its share.
//!
//! Requests with many pushes get half of the memory, and half of their app's share, so that they
//! never crowd out single pushes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::{rejection::Rejection, settings::HttpSettings};

/// The kind of request that memory is reserved for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Any request but one with many pushes.
    Single,
    /// A request with many pushes.
    Batch,
}

/// A number of bytes, of which some are in use.
#[derive(Debug)]
struct Budget {
    limit: usize,
    used: AtomicUsize,
}

impl Budget {
    const fn new(limit: usize) -> Self {
        Self { limit, used: AtomicUsize::new(0) }
    }

    /// Takes these bytes, if that leaves the use within what this purpose may have.
    fn take(&self, bytes: usize, purpose: Purpose) -> bool {
        let limit = match purpose {
            Purpose::Single => self.limit,
            Purpose::Batch => self.limit.div_ceil(2),
        };
        let taken = |used: usize| used.checked_add(bytes).filter(|used| *used <= limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The memory for the bodies of all requests in work.
#[derive(Debug)]
pub(crate) struct BodyMemory {
    budget: Budget,
    of_app: usize,
}

impl BodyMemory {
    pub(crate) fn new(http: &HttpSettings) -> Self {
        Self { budget: Budget::new(http.max_buffered), of_app: http.max_buffered_per_app }
    }

    pub(crate) fn used(&self) -> usize {
        self.budget.used.load(Ordering::Relaxed)
    }
}

/// One app's share of the memory.
#[derive(Debug)]
pub(crate) struct AppMemory {
    budget: Budget,
    all: Arc<BodyMemory>,
}

impl AppMemory {
    pub(crate) fn new(all: &Arc<BodyMemory>) -> Self {
        Self { budget: Budget::new(all.of_app), all: Arc::clone(all) }
    }
}

/// There is no memory for more of a body now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryFull {
    /// The app uses all of its share.
    App,
    /// All apps together use all of it.
    Service,
}

impl From<MemoryFull> for Rejection {
    /// Both are 503: an app is within its share again as soon as some of its requests are answered,
    /// so the caller should try again, and its rate of pushes is not what is wrong.
    fn from(full: MemoryFull) -> Self {
        Self::Unavailable(match full {
            MemoryFull::App => "the service is full for this app: it has too many bytes in work",
            MemoryFull::Service => "the service is full",
        })
    }
}

/// Bytes of the memory that a request uses, until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    app: Arc<AppMemory>,
    purpose: Purpose,
    bytes: usize,
}

impl Reservation {
    /// Nothing yet.
    pub(crate) fn empty(app: &Arc<AppMemory>, purpose: Purpose) -> Self {
        Self { app: Arc::clone(app), purpose, bytes: 0 }
    }

    /// Reserves more.
    ///
    /// # Errors
    /// If there is not so much; what was reserved before stays.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), MemoryFull> {
        if !self.app.budget.take(bytes, self.purpose) {
            return Err(MemoryFull::App);
        }
        if !self.app.all.budget.take(bytes, self.purpose) {
            self.app.budget.give_back(bytes);
            return Err(MemoryFull::Service);
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Reserves as much more as is missing to so many bytes.
    ///
    /// # Errors
    /// As [`Reservation::grow`].
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), MemoryFull> {
        match bytes.checked_sub(self.bytes) {
            None | Some(0) => Ok(()),
            Some(missing) => self.grow(missing),
        }
    }

    /// Returns how much is reserved.
    #[cfg(test)]
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Separates this many bytes, or all that there are.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { app: Arc::clone(&self.app), purpose: self.purpose, bytes }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.app.budget.give_back(self.bytes);
        self.app.all.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A memory of this many bytes, and a share of the same size for each app.
    pub(crate) fn memory(bytes: usize, of_app: usize) -> Arc<BodyMemory> {
        Arc::new(BodyMemory { budget: Budget::new(bytes), of_app })
    }

    fn app(all: &Arc<BodyMemory>) -> Arc<AppMemory> {
        Arc::new(AppMemory::new(all))
    }

    fn reserve(
        app: &Arc<AppMemory>,
        purpose: Purpose,
        bytes: usize,
    ) -> Result<Reservation, MemoryFull> {
        let mut reservation = Reservation::empty(app, purpose);
        reservation.grow(bytes).map(|()| reservation)
    }

    #[test]
    fn an_app_gets_its_share_and_leaves_the_rest_to_the_others() {
        let all = memory(100, 40);
        let (greedy, modest) = (app(&all), app(&all));
        let held = reserve(&greedy, Purpose::Single, 40).unwrap();
        assert_eq!(reserve(&greedy, Purpose::Single, 1).unwrap_err(), MemoryFull::App);
        let others =
            [reserve(&modest, Purpose::Single, 40), reserve(&app(&all), Purpose::Single, 20)];
        assert!(others.iter().all(Result::is_ok));
        assert_eq!(reserve(&app(&all), Purpose::Single, 1).unwrap_err(), MemoryFull::Service);
        drop((held, others));
        assert!(reserve(&greedy, Purpose::Single, 40).is_ok());
        assert_eq!(all.budget.used.load(Ordering::Relaxed), 0, "all of it was given back");
    }

    #[test]
    fn what_does_not_fit_takes_nothing() {
        let all = memory(100, 80);
        let (one, other) = (app(&all), app(&all));
        let mut reservation = reserve(&one, Purpose::Single, 60).unwrap();
        assert_eq!(reserve(&other, Purpose::Single, 50).unwrap_err(), MemoryFull::Service);
        assert_eq!(other.budget.used.load(Ordering::Relaxed), 0);
        assert_eq!(reservation.grow(usize::MAX), Err(MemoryFull::App), "nor does it overflow");
        assert_eq!(reservation.grow_to(60), Ok(()));
        assert_eq!(reservation.grow_to(81), Err(MemoryFull::App));
        assert_eq!(reservation.grow_to(80), Ok(()));
        let part = reservation.split(70);
        drop(reservation);
        assert_eq!(one.budget.used.load(Ordering::Relaxed), 70);
        assert_eq!((part.bytes, all.budget.used.load(Ordering::Relaxed)), (70, 70));
    }

    #[test]
    fn requests_with_many_pushes_leave_half_of_all_and_of_the_share_to_single_pushes() {
        let all = memory(100, 60);
        let (one, other) = (app(&all), app(&all));
        let _batches = reserve(&one, Purpose::Batch, 30).unwrap();
        assert_eq!(reserve(&one, Purpose::Batch, 1).unwrap_err(), MemoryFull::App);
        assert_eq!(reserve(&other, Purpose::Batch, 21).unwrap_err(), MemoryFull::Service);
        assert!(reserve(&one, Purpose::Single, 30).is_ok());
        assert!(reserve(&other, Purpose::Single, 60).is_ok());
    }
}
