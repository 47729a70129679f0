//! A device's record.
//!
//! - `carrier`: a transport, or a lane of one, for which broadcasts have partitions of their own
//! - `draft`: the JSON of a registration or an import, and its check
//! - `subscription`: the stored form of a Web Push subscription
//! - `transport_kind`: what reaches a device

mod carrier;
mod draft;
pub mod subscription;
mod transport_kind;

use std::{fmt, sync::Arc};

use serde::Serialize;

pub use self::{
    carrier::Carrier,
    draft::{AttributeWarning, BadDevice, CheckedDevice, DeviceDraft, MAX_TOKEN_LEN},
    transport_kind::TransportKind,
};
use crate::{
    attributes::Attributes,
    ids::{ClientId, UserId},
    profile::Profile,
    registration::RegistrationEpoch,
};

/// The address of a device, as delivery needs it. Its `Debug` form leaves out the token, with which
/// messages can be sent to the device.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// The device.
    pub client_id: ClientId,
    /// The transport that reaches it.
    pub transport: TransportKind,
    /// Its address at the transport's provider, where the transport has one.
    pub token: Option<Box<str>>,
    /// Tells it from a later device of the same client id.
    pub epoch: RegistrationEpoch,
    /// The user that it belongs to.
    pub user_id: Option<UserId>,
    /// Its language, if that was asked for ([`TargetFields::WithLanguage`]) and the index has it.
    pub language: Option<Arc<str>>,
}

/// What delivery needs of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TargetFields {
    /// Its address.
    #[default]
    Address,
    /// Its address and its language, for a message with texts in several languages.
    WithLanguage,
}

/// A registered device. Its JSON is the answer of `GET /v1/device/…` and a line of an export; its
/// `Debug` form leaves out the token.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Device {
    /// The device.
    pub client_id: ClientId,
    /// The attributes that targeting may ask for.
    #[serde(flatten)]
    pub attributes: Attributes,
    /// The transport that reaches it.
    pub transport: TransportKind,
    /// Its address at the transport's provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Box<str>>,
    /// What its app says of it. Its JSON has names that only the app's declarations know
    /// ([`custom::Declarations`](crate::custom::Declarations)), so it is not written with the rest.
    #[serde(skip)]
    pub profile: Profile,
}

impl Device {
    /// The carrier that reaches it.
    pub fn carrier(&self) -> Carrier {
        Carrier::of(self.transport, self.token.as_deref())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("client_id", &self.client_id)
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("client_id", &self.client_id)
            .field("attributes", &self.attributes)
            .field("transport", &self.transport)
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}

/// Why a device that a push names cannot be sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoTarget {
    /// It is not registered.
    Unknown,
    /// Its record cannot be read.
    Unreadable,
}
