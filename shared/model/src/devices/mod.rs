//! Devices, their attributes, and targeting.

pub mod attributes;
pub mod device;
pub mod mqtt;
pub mod registration;
pub mod slots;
pub mod targeting;
