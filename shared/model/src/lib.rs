//! The vocabulary of the push service: what every program and every engine means by the same words.
//!
//! Values and pure functions only: no network, no files, and a clock only in
//! [`time::UnixMillis::now`] and the issue of ids. So tests, the simulation and every engine can
//! use it. Code that talks to a server is in the other crates of `shared/`.
//!
//! Three folders group the modules by subject; callers name each module at the root:
//! - `apps`: apps, their secrets, and what they may use
//! - `devices`: devices, their attributes, and targeting
//! - `messages`: pushes, envelopes on the queue, and the ledger's entries
//!
//! The others belong to no subject: `ids`, `time`, `text`, `namespace`, `admin_key` (the keys of the admin
//! API), `audit` (the audit trail's events), `components` (running programs), `trace_parent` (the place of a message in a trace), `causes` (errors with their
//! causes), `cursor` (where the next page of a list begins).

pub mod admin_key;
mod apps;
pub mod audit;
pub mod causes;
pub mod components;
pub mod cursor;
mod devices;
pub mod ids;
mod messages;
pub mod namespace;
pub mod text;
pub mod time;
pub mod trace_parent;

pub use self::{
    apps::{app, id_key, pace, secret, transfer, usage},
    devices::{
        attributes, custom, device, filter, gone, mqtt, profile, registration, slots, targeting,
    },
    messages::{
        audience, codes, envelope, fingerprint, hints, ledger, localized, message, open_broadcast,
        plan, progress, report,
    },
};
