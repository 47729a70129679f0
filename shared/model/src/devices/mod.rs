//! Devices, their attributes, and targeting.
//!
//! - `device`: a device's record, its JSON, and the kinds of transports
//! - `attributes`: the six attributes, and the rules of their values
//! - `targeting`: the definition of which devices a broadcast reaches
//! - `registration`: what is stored of a registration beside the device
//! - `gone`: devices that providers reported as gone
//! - `slots`: ranges of slots
//! - `mqtt`: the names of a device at the MQTT broker

pub mod attributes;
pub mod device;
pub mod gone;
pub mod mqtt;
pub mod registration;
pub mod slots;
pub mod targeting;
