//! The index: `import` of devices and their memory, and `targeting` over all devices.

pub(super) mod import;
pub(super) mod targeting;
