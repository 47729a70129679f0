//! Taking apps from one place to another: `pushctl move` from store to store, `pushctl app backup` and
//! `restore` to a file and back.
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
//! - `arrive`: takes one app to a store: copies, compares, mends, and puts the app in service
//! - `digest`: compares two lists of devices in bounded memory; `mend`: makes them equal
//! - `at_target`: whether a store may take an app
//! - `moving`: the command `move`; `backup`: the commands `app backup` and `app restore`

mod arrive;
mod at_target;
pub mod backup;
mod digest;
mod mend;
pub mod moving;
mod source;
