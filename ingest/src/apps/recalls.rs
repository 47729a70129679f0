//! Bounds the recalls in work: a number for all apps together, and a share of it for each app.
//!
//! A recall goes on when its client is gone, so clients that go away could begin any number of
//! them. And without a share, one app that recalls over many connections would have all permits,
//! and the recalls of the others would be refused for as long as it goes on.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{rejection::Rejection, settings::AppSettings};

/// The permits of all apps.
#[derive(Debug)]
pub(super) struct Recalls {
    permits: Arc<Semaphore>,
    of_app: usize,
}

impl Recalls {
    pub(super) fn new(settings: &AppSettings) -> Self {
        let permits = Arc::new(Semaphore::new(settings.max_recalls));
        Self { permits, of_app: settings.max_recalls_per_app }
    }

    /// The permits of one more app.
    pub(super) fn of_app(&self) -> AppRecalls {
        let own = Arc::new(Semaphore::new(self.of_app));
        AppRecalls { own, all: Arc::clone(&self.permits) }
    }
}

/// One app's share of the permits.
#[derive(Debug)]
pub(crate) struct AppRecalls {
    own: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

impl AppRecalls {
    /// A permit for one more recall of the app.
    ///
    /// # Errors
    /// If as many are in work as the app, or all apps together, may have.
    pub(crate) fn begin(&self) -> Result<RecallPermit, TooManyRecalls> {
        let own = Arc::clone(&self.own).try_acquire_owned().map_err(|_| TooManyRecalls::App)?;
        let all = Arc::clone(&self.all).try_acquire_owned().map_err(|_| TooManyRecalls::Service)?;
        Ok(RecallPermit { _own: own, _all: all })
    }
}

/// Lets one recall be in work, until this is dropped.
#[derive(Debug)]
pub(crate) struct RecallPermit {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

/// The reason why one more recall cannot begin now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TooManyRecalls {
    /// The app has its share in work.
    App,
    /// All apps together have as many in work as they may.
    Service,
}

impl From<TooManyRecalls> for Rejection {
    fn from(too_many: TooManyRecalls) -> Self {
        Self::Unavailable(match too_many {
            TooManyRecalls::App => "the app has as many recalls in work as it may have",
            TooManyRecalls::Service => "the service has as many recalls in work as it may have",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_that_has_its_share_in_work_leaves_the_rest_to_the_others() {
        let recalls = Recalls { permits: Arc::new(Semaphore::new(3)), of_app: 2 };
        let [greedy, modest] = [(); 2].map(|()| recalls.of_app());
        let mut in_work = [(); 2].map(|()| Some(greedy.begin().unwrap()));
        assert_eq!(greedy.begin().unwrap_err(), TooManyRecalls::App);
        let _other = modest.begin().unwrap();
        assert_eq!(modest.begin().unwrap_err(), TooManyRecalls::Service);
        in_work[0] = None;
        let mut more = Some(modest.begin().unwrap());
        assert_eq!(greedy.begin().unwrap_err(), TooManyRecalls::Service);
        more.take();
        assert!(greedy.begin().is_ok(), "a permit that was refused took nothing");
    }
}
