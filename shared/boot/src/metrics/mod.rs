//! What the metrics of all programs are made of, beyond what prometheus-client has.
//!
//! Constraints they live under: a push costs some ten microseconds of processor time, so what
//! counts it may cost some nanoseconds; and a tenant must not be able to make the metrics grow.
//!
//! - [`Histogram`]: one without a lock, which takes many observations at once
//! - [`ByApp`]: counters by app, up to a limit
//! - [`StoreMetrics`]: what the queue and the stores hold
//! - [`MetricsArgs`]: the settings

mod args;
mod by_app;
mod histogram;
mod stores;

pub use self::{
    args::{MetricsArgs, MetricsSettings},
    by_app::ByApp,
    histogram::Histogram,
    stores::StoreMetrics,
};
