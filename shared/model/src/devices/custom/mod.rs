//! The attributes that an app declares for its devices, and the rules of their values.
//!
//! A custom attribute has a name, a type, and an id. The id is never given twice to attributes of one
//! app, so the values of an attribute that was removed are never taken for those of a later one of its name.
//!
//! - `value`: the types, the form of their values, and their order
//! - `version`: the order of versions

mod value;
mod version;

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, de};

pub use self::{
    value::{BadCustomValue, Order, Ordered, ValueType},
    version::{Version, is_version},
};
use crate::{attributes::Attribute, text::Text};

/// The most attributes that an app may declare.
pub const MAX_CUSTOM_ATTRIBUTES: usize = 24;

/// Identifies a custom attribute within its app.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct CustomId(pub u16);

/// The name of a custom attribute: a letter, then at most 63 of `A-Z a-z 0-9 _ . -`; none of the six
/// built-in attributes has it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct AttributeName(Arc<str>);

/// Why a text is no name of a custom attribute; the message is for the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadAttributeName {
    /// Wrong characters or length.
    #[error("must be a letter, then at most 63 characters of A-Z a-z 0-9 _ . -")]
    Form,
    /// One of the six.
    #[error("is the name of a built-in attribute, which every app has")]
    BuiltIn,
}

impl AttributeName {
    /// The longest name, in characters.
    pub const MAX_LEN: usize = 64;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AttributeName {
    type Err = BadAttributeName;

    fn from_str(text: &str) -> Result<Self, BadAttributeName> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
        let begins = text.as_bytes().first().is_some_and(u8::is_ascii_alphabetic);
        if !begins || text.len() > Self::MAX_LEN || !text.bytes().all(allowed) {
            return Err(BadAttributeName::Form);
        }
        if Attribute::ALL.iter().any(|attribute| attribute.name() == text) {
            return Err(BadAttributeName::BuiltIn);
        }
        Ok(Self(text.into()))
    }
}

impl<'de> Deserialize<'de> for AttributeName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Text::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl fmt::Display for AttributeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for AttributeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// A custom attribute as its app declares it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declaration {
    /// Its id.
    pub id: CustomId,
    /// Its name.
    pub name: AttributeName,
    /// The type of its values.
    #[serde(rename = "type")]
    pub value_type: ValueType,
}

/// Why an attribute cannot be declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotDeclared {
    /// The app has one of this name.
    #[error("the app has an attribute of this name; remove it first to change its type")]
    Exists,
    /// The app has as many as it may have.
    #[error(
        "an app may have at most {MAX_CUSTOM_ATTRIBUTES} attributes of its own; remove one first"
    )]
    Full,
    /// All ids were given.
    #[error(
        "the app has declared 65,535 attributes in its life, and no number is left for another"
    )]
    Exhausted,
}

/// The custom attributes of an app.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Declarations {
    /// Those that are in force, in the order in which they were declared.
    #[serde(default)]
    list: Vec<Declaration>,
    /// The last id that was given.
    #[serde(default)]
    last_id: u16,
}

impl Declarations {
    /// Returns true if the app never declared an attribute.
    pub fn is_untouched(&self) -> bool {
        *self == Self::default()
    }

    /// Those that are in force.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Declaration> {
        self.list.iter()
    }

    /// The declaration of a name.
    pub fn find(&self, name: &str) -> Option<&Declaration> {
        self.list.iter().find(|declared| declared.name.as_str() == name)
    }

    /// The declaration with an id.
    pub fn by_id(&self, id: CustomId) -> Option<&Declaration> {
        self.list.iter().find(|declared| declared.id == id)
    }

    /// Every id that was ever given.
    pub fn given_ids(&self) -> impl Iterator<Item = CustomId> + use<> {
        (1..=self.last_id).map(CustomId)
    }

    /// Declares an attribute.
    ///
    /// # Errors
    /// If the app has one of this name, or may not have another.
    pub fn add(
        &mut self,
        name: AttributeName,
        value_type: ValueType,
    ) -> Result<&Declaration, NotDeclared> {
        if self.find(name.as_str()).is_some() {
            return Err(NotDeclared::Exists);
        }
        if self.list.len() >= MAX_CUSTOM_ATTRIBUTES {
            return Err(NotDeclared::Full);
        }
        self.last_id = self.last_id.checked_add(1).ok_or(NotDeclared::Exhausted)?;
        let at = self.list.len();
        self.list.push(Declaration { id: CustomId(self.last_id), name, value_type });
        self.list.get(at).ok_or(NotDeclared::Full)
    }

    /// Takes a declaration away. Devices then have no value of it.
    pub fn remove(&mut self, name: &str) -> Option<Declaration> {
        let at = self.list.iter().position(|declared| declared.name.as_str() == name)?;
        Some(self.list.remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_attribute_and_a_later_one_of_its_name_have_different_ids() {
        let mut declared = Declarations::default();
        let plan = || "plan".parse::<AttributeName>().unwrap();
        let first = declared.add(plan(), ValueType::String).unwrap().id;
        assert_eq!(declared.add(plan(), ValueType::Number), Err(NotDeclared::Exists));
        assert_eq!(declared.remove("plan").unwrap().id, first);
        assert_ne!(declared.add(plan(), ValueType::Number).unwrap().id, first);
        let json = serde_json::to_string(&declared).unwrap();
        assert_eq!(serde_json::from_str::<Declarations>(&json).unwrap(), declared);
    }

    #[test]
    fn an_app_declares_at_most_24_attributes_and_none_with_a_built_in_name() {
        let mut declared = Declarations::default();
        for n in 0..MAX_CUSTOM_ATTRIBUTES {
            declared.add(format!("a{n}").parse().unwrap(), ValueType::Time).unwrap();
        }
        let full = declared.add("one-more".parse().unwrap(), ValueType::Time);
        assert_eq!(full, Err(NotDeclared::Full));
        assert_eq!("country".parse::<AttributeName>(), Err(BadAttributeName::BuiltIn));
        for bad in ["", "1a", "a b", "é", "_a", &"a".repeat(65)] {
            assert_eq!(bad.parse::<AttributeName>(), Err(BadAttributeName::Form), "{bad}");
        }
    }
}
