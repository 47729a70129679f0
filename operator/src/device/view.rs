//! A device as operators see it.

use std::{ops::Deref, sync::Arc};

use push_model::{
    app::App,
    custom::Declarations,
    device::{Device, ShownDevice},
};
use push_providers::by_kind::shown_device;
use serde::{Serialize, Serializer};

/// A device, with the names that its app gives to its attributes. It serialises as the answer of
/// `GET /v1/device/…`.
#[derive(Debug, Clone)]
pub struct DeviceView {
    device: Device,
    declared: Arc<Declarations>,
}

impl DeviceView {
    /// Shows a stored device of an app.
    pub(super) fn new(device: Device, declared: &Arc<Declarations>) -> Self {
        Self { device: shown_device(device), declared: Arc::clone(declared) }
    }

    /// The device without its address at the transport's provider, with which messages can be sent to it.
    #[must_use]
    pub fn without_token(mut self) -> Self {
        self.device.token = None;
        self
    }

    /// The attributes that its app declares.
    pub fn declared(&self) -> &Declarations {
        &self.declared
    }
}

/// Returns the declarations of an app, for the views of its devices.
pub(super) fn declared(app: &App) -> Arc<Declarations> {
    Arc::new(app.attributes.clone())
}

impl Deref for DeviceView {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.device
    }
}

impl Serialize for DeviceView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ShownDevice::new(&self.device, &self.declared).serialize(serializer)
    }
}
