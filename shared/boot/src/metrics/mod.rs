//! Building blocks for metrics that prometheus-client lacks.
//!
//! Constraints they live under: a push costs some ten microseconds of processor time, so what
//! counts it may cost some nanoseconds; and a tenant must not be able to make the metrics grow.
//!
//! - `histogram`: a histogram without a lock, which takes many observations in one call
//! - `by_app`: counters by app, up to a limit; `by_label`: metrics by a label whose values are known
//! - `stores`: what the queue and the stores hold
//! - [`process`]: what the process uses, and which build it is
//! - `args`: the settings

mod args;
mod by_app;
mod by_label;
mod histogram;
pub mod process;
mod stores;

pub use self::{
    args::{MetricsArgs, MetricsSettings},
    by_app::ByApp,
    by_label::ByLabel,
    histogram::Histogram,
    stores::StoreMetrics,
};
