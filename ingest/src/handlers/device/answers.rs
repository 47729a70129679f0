//! The answers to calls for devices, and what they warn about.

use push_credentials::{MqttLogin, RecordAccess};
use push_index::Absent;
use push_model::{
    attributes::Attribute,
    custom::Declarations,
    device::{ProfileWarning, ShownDevice},
    ids::ClientId,
};
use serde::Serialize;

use crate::message::near;

/// The most warnings of an answer.
const MAX_WARNINGS: usize = 10;

/// The answer to a registration.
#[derive(Serialize)]
pub(super) struct Registered<'a> {
    #[serde(flatten)]
    pub(super) device: ShownDevice<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mqtt: Option<MqttLogin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) access: Option<RecordAccess>,
    /// Warnings for the sender, such as attributes that are stored as absent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
}

/// The answer to a change of a profile.
#[derive(Serialize)]
pub(super) struct Patched<'a> {
    pub(super) client_id: &'a ClientId,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct Removed<'a> {
    pub(super) client_id: &'a ClientId,
}

/// Returns what to say of the parts of a profile that cannot be stored.
pub(super) fn profile_warnings(
    warnings: &[ProfileWarning],
    declared: &Declarations,
) -> Vec<String> {
    // The nearest name takes time to find, so it is looked for only where the answer has room for it.
    let texts = warnings.iter().enumerate().map(|(number, warning)| match warning {
        ProfileWarning::Undeclared(name) if number < MAX_WARNINGS => undeclared(name, declared),
        other => other.to_string(),
    });
    shortened(texts.collect())
}

/// Leaves out the last of many warnings.
pub(super) fn shortened(mut warnings: Vec<String>) -> Vec<String> {
    let beyond = warnings.len().saturating_sub(MAX_WARNINGS);
    if beyond > 0 {
        warnings.truncate(MAX_WARNINGS);
        warnings.push(format!("{beyond} more warnings are left out"));
    }
    warnings
}

fn undeclared(name: &str, declared: &Declarations) -> String {
    if Attribute::ALL.iter().any(|built_in| built_in.name() == name) {
        return format!(
            "attributes.{name} is not stored: {name} is a built-in attribute, which stands beside \
             attributes in a registration"
        );
    }
    let known = declared.iter().map(|declared| declared.name.as_str());
    let near = near(name, known).map(|near| format!("; the nearest one is {near}"));
    let near = near.unwrap_or_default();
    format!("attributes.{name} is not stored: this app declares no attribute of this name{near}")
}

/// Returns the names of the parts for which the app's dictionaries have no room.
pub(super) fn without_room(absent: &Absent, declared: &Declarations) -> Vec<String> {
    let topics = (absent.topics > 0).then(|| "topics".to_owned());
    absent.attribute_names(declared).into_iter().chain(topics).collect()
}
