//! Devices, their attributes, and targeting.
//!
//! - `device`: a device's record, its JSON, and the kinds of transports
//! - `attributes`: the six attributes, and the rules of their values
//! - `custom`: the attributes that an app declares
//! - `profile`: what an app says of a device: custom attributes, topics, and its user
//! - `filter`: expressions over attributes and topics, and samples
//! - `targeting`: the definition of which devices a broadcast reaches
//! - `registration`: what is stored of a registration beside the device
//! - `gone`: devices that providers reported as gone
//! - `slots`: ranges of slots
//! - `mqtt`: the names of a device at the MQTT broker

pub mod attributes;
pub mod custom;
pub mod device;
pub mod filter;
pub mod gone;
pub mod mqtt;
pub mod profile;
pub mod registration;
pub mod slots;
pub mod targeting;
