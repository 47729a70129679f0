//! The index: `import` of devices and their memory, `targeting` over all devices, and the `history`
//! in the ledger.

pub(super) mod history;
pub(super) mod import;
pub(super) mod targeting;
