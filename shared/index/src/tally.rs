//! Counting the devices of an app by transport and by the values of an attribute.
//!
//! Devices are counted like those of an [audience](crate::count_audience): in slices, by the columns alone, so one that
//! is registered, changed or removed meanwhile may be counted or not.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use push_model::{app::AppKey, attributes::Attribute, device::TransportKind};
use push_store::IndexError;

use crate::{Devices, walk::Walk};

/// The number of devices of each transport, and with each value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceTally {
    /// Those of each transport that has any.
    pub by_transport: BTreeMap<TransportKind, u64>,
    /// Those with each value; none stands for devices without the attribute.
    pub by_value: HashMap<Option<Arc<str>>, u64>,
}

impl DeviceTally {
    /// Adds devices of this transport.
    pub(crate) fn add_transport(&mut self, transport: TransportKind, devices: u64) {
        if devices > 0 {
            *self.by_transport.entry(transport).or_default() += devices;
        }
    }

    /// Adds devices with this value.
    pub(crate) fn add_value(&mut self, value: Option<Arc<str>>, devices: u64) {
        if devices > 0 {
            *self.by_value.entry(value).or_default() += devices;
        }
    }

    /// Adds the counts of other devices.
    fn add(&mut self, others: Self) {
        for (transport, devices) in others.by_transport {
            self.add_transport(transport, devices);
        }
        for (value, devices) in others.by_value {
            self.add_value(value, devices);
        }
    }
}

/// Some slots' part of a tally.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TalliedSlice {
    /// What was counted.
    pub tally: DeviceTally,
    /// Where the next slice begins; none at the end of the range.
    pub next: Option<u32>,
}

/// Counts all devices of an app by transport and by the values of an attribute.
///
/// # Errors
/// If the index did not answer.
pub async fn tally_devices<D: Devices + ?Sized>(
    index: &D,
    app: &AppKey,
    attribute: Attribute,
) -> Result<DeviceTally, IndexError> {
    let mut all = DeviceTally::default();
    let mut walk = Walk::begin(index, app).await?;
    while let Some(range) = walk.rest() {
        let slice = index.tally_slice(app, range, attribute).await?;
        all.add(slice.tally);
        walk.go_on(slice.next).await;
    }
    Ok(all)
}
