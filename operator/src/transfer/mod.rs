//! Takes apps from one place to another: from store to store, to a file, and back from it.
//!
//! Constraints it lives under:
//! - An app is taken whole or not at all. Its record comes last ([`push_index::Transfer`]), and only
//!   after the devices of both sides were compared.
//! - Killed at any moment and started again, a transfer goes on where it was and ends the same. What
//!   it did before is compared with the rest, so it does not matter if the target has lost a part of
//!   it, or if the source has changed.
//! - An app has more devices than fit into memory, so all passes read in batches.
//!
//! Structures:
//! - `source`: devices that can be read from any position, of a store or of a file
//! - `arrive`: takes one app to a store: copies, compares, repairs, and puts the app in service
//! - `digest`: compares two lists of devices in bounded memory; `repair`: makes them equal
//! - `at_target`: decides if a store may take an app
//! - `moving`: moves apps from store to store; `backup`: to a file and back
//! - `progress`: the events that all of them report

mod arrive;
mod at_target;
pub mod backup;
mod digest;
pub mod moving;
mod progress;
mod repair;
mod source;

pub use self::{
    arrive::Arrived,
    progress::{Observer, Progress, Step},
};
