//! The devices that a broadcast is for. Six lists, one for each attribute: a device must match one
//! value of every list that is not empty. Beside them a filter and a sample, which it must match too.
//!
//! [`Targeting::matches`] is the definition. The index engines evaluate it faster and are tested
//! against it.
//!
//! The lists come from clients, and so do the values that devices have. So nothing here, and nothing in
//! an engine, may cost as much as the one times the other: [`Targeting::wants`] is a binary search.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize, de, ser::SerializeMap as _};

use crate::{
    attributes::Attribute,
    device::Device,
    filter::{Filter, Sample, Truth},
};

/// The most values that all lists of one targeting may have together. A push that targets every model of
/// the largest brands has some thousands; more makes each worker that helps with the broadcast
/// search longer in the app's dictionaries.
pub const MAX_TARGETING_VALUES: usize = 10_000;

/// Normalised criteria; a list that is empty does not restrict. A clone shares the lists.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Targeting {
    lists: Arc<[Vec<Box<str>>; Attribute::COUNT]>,
    /// The filter, if there is one.
    pub filter: Option<Arc<Filter>>,
    /// The sample, if only a share of the devices is meant.
    pub sample: Option<Sample>,
}

impl Targeting {
    /// Every device.
    pub fn all_devices() -> Self {
        Self::default()
    }

    /// Sets the wanted values of one attribute. They must be normalised
    /// ([`Attribute::normalise_wanted`]). Values that another one covers are dropped: repeats, and a
    /// language tag of which the list has a prefix.
    pub fn set(&mut self, attribute: Attribute, mut wanted: Vec<Box<str>>) {
        wanted.sort_unstable();
        // All that a value covers follows it directly, because `*` and the hyphen sort before every
        // letter and digit.
        wanted.dedup_by(|value, kept| attribute.matches(kept, value));
        Arc::make_mut(&mut self.lists)[attribute.index()] = wanted;
    }

    /// Returns true if a device with this value of the attribute is meant; true if the attribute does not
    /// restrict.
    pub fn wants(&self, attribute: Attribute, has: &str) -> bool {
        let wanted = self.wanted(attribute);
        // No value of the list covers another, so only the last one that is not behind `has` can
        // cover it.
        let last = wanted.partition_point(|value| **value <= *has).checked_sub(1);
        wanted.is_empty() || last.is_some_and(|last| attribute.matches(&wanted[last], has))
    }

    /// Returns how many values the lists and the filter have together.
    pub fn len(&self) -> usize {
        let listed: usize = self.lists.iter().map(Vec::len).sum();
        listed + self.filter.as_ref().map_or(0, |filter| filter.len())
    }

    /// Returns true if every device is meant.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.sample.is_none()
    }

    /// Returns how many bytes of memory it takes, about.
    pub fn bytes(&self) -> usize {
        let listed: usize =
            self.lists.iter().flatten().map(|value| value.len() + size_of::<Box<str>>()).sum();
        let sample = self.sample.as_ref().map_or(0, |sample| sample.seed.len());
        listed + sample + self.filter.as_ref().map_or(0, |filter| filter.bytes())
    }

    /// The same targeting for all devices, not only a share of them. A clone shares the lists.
    #[must_use]
    pub fn without_sample(&self) -> Self {
        Self { sample: None, ..self.clone() }
    }

    /// The wanted values of one attribute; an empty list does not restrict.
    pub fn wanted(&self, attribute: Attribute) -> &[Box<str>] {
        &self.lists[attribute.index()]
    }

    /// The attributes that restrict, with their wanted values.
    pub fn criteria(&self) -> impl Iterator<Item = (Attribute, &[Box<str>])> {
        Attribute::ALL.into_iter().map(|a| (a, self.wanted(a))).filter(|(_, list)| !list.is_empty())
    }

    /// Returns true if a device of which no value was lost matches.
    pub fn matches(&self, device: &Device) -> bool {
        let holds = |filter: &Arc<Filter>| {
            filter.evaluate(&device.attributes, &device.profile) == Truth::True
        };
        self.criteria().all(|(attribute, _)| {
            device.attributes.get(attribute).is_some_and(|has| self.wants(attribute, has))
        }) && self.filter.as_ref().is_none_or(holds)
            && self.sample.as_ref().is_none_or(|sample| sample.has(&device.client_id))
    }
}

impl Serialize for Targeting {
    /// One member for each list, and those of the filter and the sample.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (attribute, list) in self.criteria() {
            map.serialize_entry(attribute.name(), list)?;
        }
        if let Some(filter) = &self.filter {
            map.serialize_entry("filter", &**filter)?;
        }
        if let Some(sample) = &self.sample {
            map.serialize_entry("sample", sample)?;
        }
        map.end()
    }
}

/// The members beside the lists.
#[derive(Deserialize)]
struct Members {
    #[serde(default)]
    filter: Option<Filter>,
    #[serde(default)]
    sample: Option<Sample>,
    #[serde(flatten)]
    lists: BTreeMap<String, Vec<Box<str>>>,
}

impl<'de> Deserialize<'de> for Targeting {
    /// Reads what [`Targeting::serialize`] wrote: names known, values normalised.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Members { filter, sample, lists } = Members::deserialize(deserializer)?;
        let mut targeting = Self { filter: filter.map(Arc::new), sample, ..Self::default() };
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
    use proptest::prelude::*;

    use super::*;
    use crate::{attributes::Attributes, device::TransportKind, profile::Profile};

    fn device(country: Option<&str>, language: Option<&str>) -> Device {
        let mut attributes = Attributes::default();
        if let Some(country) = country {
            attributes.set(Attribute::Country, country).unwrap();
        }
        if let Some(language) = language {
            attributes.set(Attribute::Language, language).unwrap();
        }
        Device {
            client_id: "c".parse().unwrap(),
            attributes,
            transport: TransportKind::Mqtt,
            token: None,
            profile: Profile::default(),
        }
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

    proptest! {
        #[test]
        fn a_value_is_wanted_if_any_of_the_list_covers_it(
            wanted in prop::collection::vec("[*]|[ab]{1,2}(-[a1]{1,2}){0,3}", 1..12),
            has in prop::collection::vec("[ab]{1,2}(-[a1]{1,2}){0,3}", 1..12),
        ) {
            let wanted: Vec<Box<str>> = wanted.into_iter().map(Into::into).collect();
            for attribute in Attribute::ALL {
                let mut targeting = Targeting::all_devices();
                targeting.set(attribute, wanted.clone());
                for has in &has {
                    let any = wanted.iter().any(|wanted| attribute.matches(wanted, has));
                    prop_assert_eq!(targeting.wants(attribute, has), any, "{:?} {}", targeting, has);
                }
            }
        }
    }

    #[test]
    fn a_tag_that_another_one_of_the_list_covers_is_dropped() {
        let mut targeting = Targeting::all_devices();
        targeting.set(
            Attribute::Language,
            ["zh-cn", "zha", "zh", "en-us", "zh-hans-cn", "zh"].map(Into::into).to_vec(),
        );
        assert_eq!(targeting.wanted(Attribute::Language), ["en-us", "zh", "zha"].map(Into::into));
        targeting.set(Attribute::Language, ["en", "*", "zh"].map(Into::into).to_vec());
        assert_eq!(targeting.wanted(Attribute::Language), ["*"].map(Into::into));
        targeting.set(Attribute::Model, ["a-b", "a", "a"].map(Into::into).to_vec());
        assert_eq!(targeting.wanted(Attribute::Model), ["a", "a-b"].map(Into::into));
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
