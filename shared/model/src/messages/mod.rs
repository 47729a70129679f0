//! Pushes, the envelopes on the queue, and the ledger's entries.
//!
//! - `message`: an accepted push. `localized`: its texts in several languages. `audience`: how many devices one would target
//! - `envelope`: jobs and tasks, as they are encoded on the queue
//! - `ledger`: an entry, its partitions and outcomes
//! - `plan`, `progress`: how a broadcast is cut, and how far it is
//! - `open_broadcast`: the devices that are left of a broadcast
//! - `report`: the public report on a message
//! - `codes`: the public codes of the push endpoint
//! - `hints`: what a push asks of the systems that deliver and show it
//! - `fingerprint`: tells two bodies under one idempotency key apart

pub mod audience;
pub mod codes;
pub mod envelope;
pub mod fingerprint;
pub mod hints;
pub mod ledger;
pub mod localized;
pub mod message;
pub mod open_broadcast;
pub mod plan;
pub mod progress;
pub mod report;
