//! The index: `import` of devices and their memory, and `targeting` over all devices; `filters` are a part of that.

mod filters;
pub(super) mod import;
pub(super) mod targeting;
