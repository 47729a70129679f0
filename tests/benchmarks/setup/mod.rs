//! The environment of benchmarks, and the size of a run.
//!
//! - `environment`: the servers of the run, and the apps loaded into them
//! - `population`: the devices of those apps
//! - `phones`: an app of phones or browsers, and its provider
//! - `workers`: worker processes
//! - `sizes`: how much of everything a full and a quick run use

pub(crate) mod environment;
pub(crate) mod phones;
pub(crate) mod population;
pub(crate) mod sizes;
pub(crate) mod workers;

pub(crate) use self::{
    environment::{Environment, LoadedApp},
    phones::Phones,
    sizes::Sizes,
    workers::Workers,
};
