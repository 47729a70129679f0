//! The six attributes of a device that targeting can ask for, and how their values compare.
//!
//! Devices' values and targeting's values are normalised by the same function, once, where they
//! enter the service. From there on equal bytes are equal values, so the index can replace values
//! by codes. Only languages are compared by more than equality (RFC 4647, basic filtering).
//!
//! Normalising a value again changes nothing, so a device that is exported, moved or restored stays as
//! it is.
//!
//! - `country`, `language`, `name` (brands and models): the rules for one kind of value each
//! - `invisible`: invisible characters
//! - `registry`: former language tags and regions, a table of the IANA registry

mod country;
mod invisible;
mod language;
mod name;
mod registry;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::invisible::{plain, trim};

/// An attribute that a device may have and a push may target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attribute {
    /// ISO 3166-1 alpha-2, upper case: `CN`.
    Country,
    /// A language tag (RFC 5646), lower case: `zh-hans-cn`.
    Language,
    /// NFKC, upper case, nothing invisible: `XIAOMI`.
    Brand,
    /// As a brand: `REDMINOTE12`.
    Model,
    /// An Android API level, decimal without leading zeros: `34`.
    OsVersion,
    /// The app's own version, without surrounding white space: `2.0.1`.
    AppVersion,
}

/// Why a text is no value of an attribute; the message is for the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadValue {
    /// Nothing is left after normalising.
    #[error("must not be empty")]
    Empty,
    /// Longer than [`Attribute::MAX_LEN`].
    #[error("must be at most {} bytes", Attribute::MAX_LEN)]
    TooLong,
    /// A control character.
    #[error("must not contain control characters")]
    Control,
    /// Not two letters.
    #[error("must be two letters (ISO 3166-1 alpha-2), like CN")]
    Country,
    /// Not a language tag.
    #[error("must be a language tag, like zh or zh-CN")]
    Language,
    /// The locale `C` or `POSIX`.
    #[error("must be a language tag, like zh or zh-CN; C and POSIX name no language")]
    NoLanguage,
    /// Not a number.
    #[error("must be an Android API level in digits, like 34")]
    OsVersion,
}

impl Attribute {
    /// All six, in the order in which they are stored.
    pub const ALL: [Self; 6] = [
        Self::Country,
        Self::Language,
        Self::Brand,
        Self::Model,
        Self::OsVersion,
        Self::AppVersion,
    ];

    /// The number of attributes.
    pub const COUNT: usize = Self::ALL.len();

    /// The longest value, in bytes.
    pub const MAX_LEN: usize = 128;

    /// The position in [`Attribute::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name of the field in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Country => "country",
            Self::Language => "language",
            Self::Brand => "brand",
            Self::Model => "model",
            Self::OsVersion => "os_version",
            Self::AppVersion => "app_version",
        }
    }

    /// The form of a device's value in which it is stored and compared.
    ///
    /// # Errors
    /// If the text is no value of this attribute.
    pub fn normalise(self, text: &str) -> Result<Box<str>, BadValue> {
        if text.len() > Self::MAX_LEN {
            return Err(BadValue::TooLong);
        }
        let value = match self {
            Self::Country => country::normalise(text)?,
            Self::Language => language::normalise(text)?,
            Self::Brand | Self::Model => name::normalise(text),
            Self::OsVersion => api_level(text)?,
            Self::AppVersion => trim(text).to_owned(),
        };
        if value.is_empty() {
            return Err(BadValue::Empty);
        }
        if value.len() > Self::MAX_LEN {
            return Err(BadValue::TooLong);
        }
        if value.chars().any(char::is_control) {
            return Err(BadValue::Control);
        }
        Ok(value.into())
    }

    /// The form of a value that a push asks for. As [`Attribute::normalise`], and `*` asks for
    /// any language (RFC 4647 section 2.1).
    ///
    /// # Errors
    /// If the text is no value of this attribute.
    pub fn normalise_wanted(self, text: &str) -> Result<Box<str>, BadValue> {
        if self == Self::Language && plain(text) == "*" {
            return Ok("*".into());
        }
        self.normalise(text)
    }

    /// Returns true if a wanted value covers no other value than itself.
    pub const fn is_exact(self) -> bool {
        !matches!(self, Self::Language)
    }

    /// Returns true if a device with the value `has` is one that a push for `wanted` means, both
    /// normalised.
    pub fn matches(self, wanted: &str, has: &str) -> bool {
        if self.is_exact() { wanted == has } else { language::matches(wanted, has) }
    }
}

fn api_level(text: &str) -> Result<String, BadValue> {
    let text = plain(text);
    if text.is_empty() {
        return Err(BadValue::Empty);
    }
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(BadValue::OsVersion);
    }
    let digits = text.trim_start_matches('0');
    Ok(if digits.is_empty() { "0" } else { digits }.to_owned())
}

/// The normalised attribute values of one device. Devices can share a value's memory: an app has
/// few values and many devices.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Attributes {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    country: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    language: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    brand: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    model: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    os_version: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    app_version: Option<Arc<str>>,
}

impl Attributes {
    fn slot(&mut self, attribute: Attribute) -> &mut Option<Arc<str>> {
        match attribute {
            Attribute::Country => &mut self.country,
            Attribute::Language => &mut self.language,
            Attribute::Brand => &mut self.brand,
            Attribute::Model => &mut self.model,
            Attribute::OsVersion => &mut self.os_version,
            Attribute::AppVersion => &mut self.app_version,
        }
    }

    /// The value of one attribute, if the device has it.
    pub fn get(&self, attribute: Attribute) -> Option<&str> {
        match attribute {
            Attribute::Country => self.country.as_deref(),
            Attribute::Language => self.language.as_deref(),
            Attribute::Brand => self.brand.as_deref(),
            Attribute::Model => self.model.as_deref(),
            Attribute::OsVersion => self.os_version.as_deref(),
            Attribute::AppVersion => self.app_version.as_deref(),
        }
    }

    /// Normalises and sets one value.
    ///
    /// # Errors
    /// If the text is no value of this attribute; nothing is changed then.
    pub fn set(&mut self, attribute: Attribute, text: &str) -> Result<(), BadValue> {
        *self.slot(attribute) = Some(attribute.normalise(text)?.into());
        Ok(())
    }

    /// Takes a value away.
    pub fn unset(&mut self, attribute: Attribute) {
        *self.slot(attribute) = None;
    }

    /// Sets a value that was normalised before: an engine reads it from its store.
    pub fn set_normalised(&mut self, attribute: Attribute, value: Arc<str>) {
        *self.slot(attribute) = Some(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn norm(attribute: Attribute, text: &str) -> String {
        attribute.normalise(text).unwrap().into()
    }

    #[test]
    fn brand_and_model_ignore_case_and_all_white_space() {
        assert_eq!(norm(Attribute::Brand, " xiao\tmi\u{3000}"), "XIAOMI");
        assert_eq!(norm(Attribute::Model, "Redmi Note 12"), "REDMINOTE12");
        assert_eq!(Attribute::Brand.normalise(" \u{a0} "), Err(BadValue::Empty));
    }

    #[test]
    fn a_language_reaches_its_more_specific_tags_and_never_its_less_specific_ones() {
        let matches = |wanted: &str, has: &str| {
            let wanted = Attribute::Language.normalise_wanted(wanted).unwrap();
            Attribute::Language.matches(&wanted, &norm(Attribute::Language, has))
        };
        assert!(matches("zh", "zh"));
        assert!(matches("zh", "zh-CN"));
        assert!(matches("ZH", "zh_Hans_CN"));
        assert!(matches("zh_hans", "zh-Hans-CN"));
        assert!(matches("*", "en"));
        assert!(matches("he", "iw_IL") && matches("iw", "he-IL") && matches("id", "in"));
        assert!(matches("zh-Hans", "zh-cmn-Hans-CN") && matches("en-GB", "en_UK.UTF-8"));
        assert!(!matches("zh-CN", "zh"));
        assert!(!matches("zh-CN", "zh-Hans-CN"));
        assert!(!matches("zh", "zha"));
    }

    #[test]
    fn api_levels_compare_as_numbers_and_app_versions_exactly() {
        assert_eq!(norm(Attribute::OsVersion, "034"), "34");
        assert_eq!(norm(Attribute::OsVersion, "0"), "0");
        assert_eq!(norm(Attribute::OsVersion, "\u{feff}３４"), "34");
        assert_eq!(Attribute::OsVersion.normalise("14.0"), Err(BadValue::OsVersion));
        assert_eq!(norm(Attribute::AppVersion, "\u{feff} 2.0.1b\u{200b} "), "2.0.1b");
        assert!(!Attribute::AppVersion.matches("2.0", "2.0.0"));
    }

    #[test]
    fn a_value_is_bounded_and_has_no_control_characters() {
        assert_eq!(Attribute::Model.normalise(&"x".repeat(129)), Err(BadValue::TooLong));
        assert_eq!(Attribute::Model.normalise("a\u{7}b"), Err(BadValue::Control));
        // One character that NFKC turns into eighteen.
        assert_eq!(Attribute::Model.normalise(&"\u{fdfa}".repeat(42)), Err(BadValue::TooLong));
        for invisible in ["", " ", "\u{feff}", "\u{3164}\u{200d}"] {
            for attribute in Attribute::ALL {
                assert_eq!(attribute.normalise(invisible), Err(BadValue::Empty), "{attribute:?}");
            }
        }
    }
}
