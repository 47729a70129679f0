//! Metrics with a label for the app.
//!
//! Each value of a label is a time series that Prometheus keeps for weeks, and an installation may
//! have any number of apps. So only the first apps that are seen have a value of their own, and the
//! others share one. An app that was removed keeps its value until the program ends.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use push_model::ids::AppId;

/// The value of the label for all apps beyond the limit. An app may have this name too; then it
/// counts with them.
const OTHER: &str = "other";

/// The metrics of each app, of which `T` are the handles. A handle is to be kept where the app's
/// other state is, so that no request has to look it up.
pub struct ByApp<T> {
    limit: usize,
    /// Makes the handles for a value of the label.
    make: Box<dyn Fn(&str) -> T + Send + Sync>,
    apps: RwLock<HashMap<AppId, Arc<T>>>,
    others: OnceLock<Arc<T>>,
}

impl<T> ByApp<T> {
    /// Metrics of which the first `limit` apps have their own. `make` makes those for a value of
    /// the label.
    pub fn new(limit: usize, make: impl Fn(&str) -> T + Send + Sync + 'static) -> Self {
        let (make, apps) = (Box::new(make), RwLock::default());
        Self { limit, make, apps, others: OnceLock::new() }
    }

    /// The metrics of an app.
    pub fn of(&self, app: &AppId) -> Arc<T> {
        if let Some(known) = self.apps.read().unwrap_or_else(PoisonError::into_inner).get(app) {
            return Arc::clone(known);
        }
        let mut apps = self.apps.write().unwrap_or_else(PoisonError::into_inner);
        if apps.len() >= self.limit && !apps.contains_key(app) {
            drop(apps);
            return Arc::clone(self.others.get_or_init(|| Arc::new((self.make)(OTHER))));
        }
        let make = || Arc::new((self.make)(app.as_str()));
        Arc::clone(apps.entry(app.clone()).or_insert_with(make))
    }
}

impl<T> fmt::Debug for ByApp<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByApp").field("limit", &self.limit).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(name: &str) -> AppId {
        name.parse().unwrap()
    }

    #[test]
    fn the_first_apps_have_a_value_of_their_own_and_the_others_share_one() {
        let metrics = ByApp::new(2, str::to_owned);
        let of = |name| metrics.of(&app(name)).to_string();
        assert_eq!(["a", "b", "c", "d", "b", "a"].map(of), ["a", "b", "other", "other", "b", "a"]);
    }

    #[test]
    fn with_a_limit_of_zero_all_apps_share_one_value() {
        let metrics = ByApp::new(0, str::to_owned);
        let (one, other) = (metrics.of(&app("a")), metrics.of(&app("b")));
        assert!(Arc::ptr_eq(&one, &other));
        assert_eq!(*one, OTHER);
    }
}
