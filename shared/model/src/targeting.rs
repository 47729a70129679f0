//! Which devices a broadcast is for. Six lists, one for each attribute: a device must match one
//! value of every list that is not empty.
//!
//! [`Targeting::matches`] is the definition. The index engines evaluate it faster and are tested
//! against it.

use serde::{Deserialize, Serialize, de};

use crate::attributes::{Attribute, Attributes};

/// Normalised criteria; a list that is empty does not restrict.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Targeting {
    lists: [Vec<Box<str>>; Attribute::COUNT],
}

impl Targeting {
    /// Every device.
    pub fn all_devices() -> Self {
        Self::default()
    }

    /// Sets the wanted values of one attribute. They must be normalised
    /// ([`Attribute::normalise_wanted`]); repeats are dropped.
    pub fn set(&mut self, attribute: Attribute, mut wanted: Vec<Box<str>>) {
        wanted.sort_unstable();
        wanted.dedup();
        self.lists[attribute.index()] = wanted;
    }

    /// The wanted values of one attribute; an empty list does not restrict.
    pub fn wanted(&self, attribute: Attribute) -> &[Box<str>] {
        &self.lists[attribute.index()]
    }

    /// The attributes that restrict, with their wanted values.
    pub fn criteria(&self) -> impl Iterator<Item = (Attribute, &[Box<str>])> {
        Attribute::ALL.into_iter().map(|a| (a, self.wanted(a))).filter(|(_, list)| !list.is_empty())
    }

    /// Whether a device with these attributes matches.
    pub fn matches(&self, device: &Attributes) -> bool {
        self.criteria().all(|(attribute, wanted)| {
            device
                .get(attribute)
                .is_some_and(|has| wanted.iter().any(|w| attribute.matches(w, has)))
        })
    }
}

impl Serialize for Targeting {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.criteria().map(|(attribute, list)| (attribute.name(), list)))
    }
}

impl<'de> Deserialize<'de> for Targeting {
    /// Reads what [`Targeting::serialize`] wrote: names known, values normalised.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let lists = std::collections::BTreeMap::<String, Vec<Box<str>>>::deserialize(deserializer)?;
        let mut targeting = Self::default();
        for (name, list) in lists {
            let attribute = Attribute::ALL
                .into_iter()
                .find(|a| a.name() == name)
                .ok_or_else(|| de::Error::custom(format_args!("unknown criterion `{name}`")))?;
            targeting.set(attribute, list);
        }
        Ok(targeting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(country: Option<&str>, language: Option<&str>) -> Attributes {
        let mut attributes = Attributes::default();
        if let Some(country) = country {
            attributes.set(Attribute::Country, country).unwrap();
        }
        if let Some(language) = language {
            attributes.set(Attribute::Language, language).unwrap();
        }
        attributes
    }

    #[test]
    fn values_are_alternatives_and_lists_must_all_hold() {
        let mut targeting = Targeting::all_devices();
        targeting.set(Attribute::Country, vec!["CN".into(), "SG".into()]);
        targeting.set(Attribute::Language, vec!["zh".into()]);
        assert!(targeting.matches(&device(Some("cn"), Some("zh-CN"))));
        assert!(targeting.matches(&device(Some("SG"), Some("zh"))));
        assert!(!targeting.matches(&device(Some("SG"), Some("en"))));
        assert!(!targeting.matches(&device(Some("US"), Some("zh"))));
    }

    #[test]
    fn a_device_without_an_attribute_matches_only_where_that_list_does_not_restrict() {
        let mut targeting = Targeting::all_devices();
        assert!(targeting.matches(&device(None, None)));
        targeting.set(Attribute::Country, vec!["CN".into()]);
        assert!(!targeting.matches(&device(None, Some("zh"))));
        assert!(targeting.matches(&device(Some("CN"), None)));
    }

    #[test]
    fn criteria_survive_their_json_form() {
        let mut targeting = Targeting::all_devices();
        targeting.set(Attribute::Model, vec!["B".into(), "A".into(), "B".into()]);
        let json = serde_json::to_string(&targeting).unwrap();
        assert_eq!(json, r#"{"model":["A","B"]}"#);
        assert_eq!(serde_json::from_str::<Targeting>(&json).unwrap(), targeting);
        assert!(serde_json::from_str::<Targeting>(r#"{"modell":["A"]}"#).is_err());
    }
}
