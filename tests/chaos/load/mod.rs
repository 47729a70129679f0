//! The pushes of a run.
//!
//! - `audience`: the devices, and those that a targeting means; `pushes`: every push. Both are pure
//!   functions of the seed.
//! - `producer`: posts them, through `client`

pub(crate) mod audience;
pub(crate) mod client;
pub(crate) mod producer;
pub(crate) mod pushes;
