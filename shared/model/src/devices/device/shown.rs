//! The JSON of a device with its profile, as answers and exports show it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::Device;
use crate::{
    custom::Declarations,
    ids::{Topic, UserId},
};

/// A device, with the names that its app gives to what it says of it. A value of an attribute that was removed
/// is not shown.
#[derive(Debug, Serialize)]
pub struct ShownDevice<'a> {
    #[serde(flatten)]
    device: &'a Device,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<&'a str, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topics: Option<&'a [Topic]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<&'a UserId>,
}

impl<'a> ShownDevice<'a> {
    /// Shows a device of an app that declares these attributes.
    pub fn new(device: &'a Device, declared: &'a Declarations) -> Self {
        let profile = &device.profile;
        let attributes = profile.custom.iter().filter_map(|(id, value)| {
            let declared = declared.by_id(*id)?;
            Some((declared.name.as_str(), declared.value_type.to_json(value)))
        });
        let topics = Some(&*profile.topics).filter(|topics| !topics.is_empty());
        let user_id = profile.user_id.as_ref();
        Self { device, attributes: attributes.collect(), topics, user_id }
    }
}
