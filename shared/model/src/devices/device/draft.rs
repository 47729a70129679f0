//! The JSON of a registration or an import, and its check.

use std::{fmt, sync::Arc};

use serde::Deserialize;

use super::{Device, TransportKind};
use crate::{
    attributes::{Attribute, Attributes, BadValue},
    ids::ClientId,
    profile::Profile,
    text::Text,
};

/// A device as a request or an import has it, not checked yet. Unknown fields are ignored, `null`
/// is absent. Its `Debug` form leaves out the token.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct DeviceDraft<'a> {
    /// Required in an import; in a request the path names the device.
    #[serde(borrow)]
    pub client_id: Option<Text<'a>>,
    /// ISO 3166-1 alpha-2.
    #[serde(borrow)]
    pub country: Option<Text<'a>>,
    /// A language tag.
    #[serde(borrow)]
    pub language: Option<Text<'a>>,
    /// Any text.
    #[serde(borrow)]
    pub brand: Option<Text<'a>>,
    /// Any text.
    #[serde(borrow)]
    pub model: Option<Text<'a>>,
    /// Digits.
    #[serde(borrow)]
    pub os_version: Option<Text<'a>>,
    /// Any text.
    #[serde(borrow)]
    pub app_version: Option<Text<'a>>,
    /// A name of [`TransportKind`]; MQTT if absent.
    #[serde(borrow)]
    pub transport: Option<Text<'a>>,
    /// The address at the transport's provider.
    #[serde(borrow)]
    pub token: Option<Text<'a>>,
}

impl fmt::Debug for DeviceDraft<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceDraft")
            .field("client_id", &self.client_id)
            .field("country", &self.country)
            .field("language", &self.language)
            .field("brand", &self.brand)
            .field("model", &self.model)
            .field("os_version", &self.os_version)
            .field("app_version", &self.app_version)
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

/// A device whose fields were checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedDevice {
    /// Its record.
    pub device: Device,
    /// Warnings for its sender.
    pub warnings: Vec<AttributeWarning>,
}

/// An attribute whose text cannot be read and which is therefore stored as absent. The registration
/// is not refused, because the device would then get no login and no pushes at all. The message is
/// for the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} {problem}; it is stored as absent", attribute.name())]
pub struct AttributeWarning {
    /// The attribute.
    pub attribute: Attribute,
    /// Why its text cannot be read.
    pub problem: BadValue,
}

/// A mistake in a device; the message is for the sender.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct BadDevice {
    /// The field that is wrong.
    pub field: &'static str,
    /// The form that it must have.
    pub problem: String,
}

/// The longest token, in bytes: several times what providers issue.
pub const MAX_TOKEN_LEN: usize = 4096;

impl DeviceDraft<'_> {
    /// Checks and normalises everything. An attribute that cannot be read is left out, with a warning.
    ///
    /// # Errors
    /// If the transport is not valid, or no transport could have the token. Its provider checks the token further.
    pub fn check(self, client_id: ClientId) -> Result<CheckedDevice, BadDevice> {
        self.check_with(client_id, |attribute, text| Ok(attribute.normalise(text)?.into()))
    }

    /// As [`DeviceDraft::check`], with a function in place of [`Attribute::normalise`]: a caller
    /// with many devices caches the values that they share.
    ///
    /// # Errors
    /// As [`DeviceDraft::check`].
    pub fn check_with(
        self,
        client_id: ClientId,
        mut normalise: impl FnMut(Attribute, &str) -> Result<Arc<str>, BadValue>,
    ) -> Result<CheckedDevice, BadDevice> {
        let mut attributes = Attributes::default();
        let mut warnings = Vec::new();
        let values = [
            (Attribute::Country, &self.country),
            (Attribute::Language, &self.language),
            (Attribute::Brand, &self.brand),
            (Attribute::Model, &self.model),
            (Attribute::OsVersion, &self.os_version),
            (Attribute::AppVersion, &self.app_version),
        ];
        for (attribute, value) in values {
            if let Some(text) = value {
                match normalise(attribute, text) {
                    Ok(value) => attributes.set_normalised(attribute, value),
                    Err(problem) => warnings.push(AttributeWarning { attribute, problem }),
                }
            }
        }
        let transport = match self.transport.as_deref() {
            None => TransportKind::default(),
            Some(name) => TransportKind::from_name(name).ok_or_else(|| BadDevice {
                field: "transport",
                problem: format!(
                    "must be one of {}",
                    TransportKind::ALL.map(TransportKind::name).join(", ")
                ),
            })?,
        };
        if let Some(token) = &self.token
            && (token.is_empty()
                || token.len() > MAX_TOKEN_LEN
                || token.chars().any(char::is_control))
        {
            return Err(BadDevice {
                field: "token",
                problem: format!("must be 1 to {MAX_TOKEN_LEN} bytes without control characters"),
            });
        }
        let token = self.token.as_deref().map(Into::into);
        let profile = Profile::default();
        let device = Device { client_id, attributes, transport, token, profile };
        Ok(CheckedDevice { device, warnings })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{device::Target, registration::RegistrationEpoch};

    fn check(json: &str) -> Result<CheckedDevice, BadDevice> {
        let draft: DeviceDraft<'_> = serde_json::from_str(json).unwrap();
        draft.check("c1".parse().unwrap())
    }

    #[test]
    fn a_device_comes_back_normalised() {
        let CheckedDevice { device, warnings } = check(
            r#"{"country":"cn","language":"zh_CN","brand":"Xiao Mi","os_version":"34","x":1,"model":null}"#,
        )
        .unwrap();
        assert_eq!(warnings, []);
        assert_eq!(
            serde_json::to_string(&device).unwrap(),
            r#"{"client_id":"c1","country":"CN","language":"zh-cn","brand":"XIAOMI","os_version":"34","transport":"mqtt"}"#
        );
    }

    #[test]
    fn an_attribute_that_cannot_be_read_is_absent_and_named_in_a_warning() {
        let json = format!(
            r#"{{"country":"China","language":"C.UTF-8","brand":"\ufeff","model":"{}","os_version":"14.0","app_version":"2"}}"#,
            "x".repeat(129)
        );
        let CheckedDevice { device, warnings } = check(&json).unwrap();
        let has = Attribute::ALL.map(|attribute| device.attributes.get(attribute));
        assert_eq!(has, [None, None, None, None, None, Some("2")]);
        let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings[0],
            "country must be two letters (ISO 3166-1 alpha-2), like CN; it is stored as absent"
        );
        for (warning, start) in
            warnings.iter().zip(["country", "language", "brand", "model", "os_"])
        {
            assert!(warning.starts_with(start), "{warning}");
        }
        assert_eq!(warnings.len(), 5);
    }

    #[test]
    fn a_bad_device_names_the_field_and_what_it_must_be() {
        assert!(check(r#"{"transport":"pigeon"}"#).unwrap_err().to_string().contains("mqtt, fcm"));
        assert!(check(r#"{"token":""}"#).is_err());
    }

    #[test]
    fn a_token_is_not_in_the_debug_form() {
        let draft: DeviceDraft<'_> = serde_json::from_str(r#"{"token":"hunter2"}"#).unwrap();
        let draft_text = format!("{draft:?}");
        let device = draft.check("c1".parse().unwrap()).unwrap().device;
        let Device { client_id, transport, token, .. } = device.clone();
        let epoch = RegistrationEpoch::default();
        let (user_id, language) = (None, None);
        let target = Target { client_id, transport, token, epoch, user_id, language };
        assert_eq!(target.token.as_deref(), Some("hunter2"));
        for text in [draft_text, format!("{device:?}"), format!("{target:?}")] {
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
}
