//! How many devices a push would target: in all, by transport, and after each criterion.

use std::{collections::BTreeMap, num::NonZeroU32};

use serde::{Deserialize, Serialize};

use crate::{attributes::Attribute, device::TransportKind, targeting::Targeting};

/// The number of devices in an audience.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AudienceCounts {
    /// All of them.
    pub devices: u64,
    /// Those of each transport that has any.
    pub by_transport: BTreeMap<TransportKind, u64>,
    /// The devices that are left after each criterion, in the order in which they are applied. The last one
    /// leaves the audience. Empty if nothing restricts.
    pub after_each_criterion: Vec<CriterionCount>,
}

/// The devices that are left after a criterion and those before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CriterionCount {
    /// The criterion.
    pub criterion: Criterion,
    /// The number of devices.
    pub devices: u64,
}

/// What restricts an audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Criterion {
    /// The list of a [built-in attribute](Attribute).
    Country,
    /// The same.
    Language,
    /// The same.
    Brand,
    /// The same.
    Model,
    /// The same.
    OsVersion,
    /// The same.
    AppVersion,
    /// The filter.
    Filter,
    /// The sample. Its count is an estimate: the sample's share of what the other criteria leave.
    Sample,
}

impl Criterion {
    /// The name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Country => Attribute::Country.name(),
            Self::Language => Attribute::Language.name(),
            Self::Brand => Attribute::Brand.name(),
            Self::Model => Attribute::Model.name(),
            Self::OsVersion => Attribute::OsVersion.name(),
            Self::AppVersion => Attribute::AppVersion.name(),
            Self::Filter => "filter",
            Self::Sample => "sample",
        }
    }
}

impl From<Attribute> for Criterion {
    fn from(attribute: Attribute) -> Self {
        match attribute {
            Attribute::Country => Self::Country,
            Attribute::Language => Self::Language,
            Attribute::Brand => Self::Brand,
            Attribute::Model => Self::Model,
            Attribute::OsVersion => Self::OsVersion,
            Attribute::AppVersion => Self::AppVersion,
        }
    }
}

impl AudienceCounts {
    /// Returns the counts of a targeting before any device is counted.
    pub fn none(targeting: &Targeting) -> Self {
        let lists = targeting.criteria().map(|(attribute, _)| attribute.into());
        let filter = targeting.filter.as_ref().map(|_| Criterion::Filter);
        let sample = targeting.sample.as_ref().map(|_| Criterion::Sample);
        let none = |criterion| CriterionCount { criterion, devices: 0 };
        let after_each_criterion = lists.chain(filter).chain(sample).map(none).collect();
        Self { after_each_criterion, ..Self::default() }
    }

    /// Adds devices of this transport to the audience.
    pub fn add_devices(&mut self, transport: TransportKind, devices: u64) {
        if devices > 0 {
            self.devices += devices;
            *self.by_transport.entry(transport).or_default() += devices;
        }
    }

    /// Adds the counts of other devices, by the same criteria.
    pub fn add(&mut self, others: &Self) {
        for (transport, devices) in &others.by_transport {
            self.add_devices(*transport, *devices);
        }
        for (sum, other) in self.after_each_criterion.iter_mut().zip(&others.after_each_criterion) {
            sum.devices += other.devices;
        }
    }
}

/// The answer to the question how many devices a push would target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AudienceReport {
    /// The counts.
    #[serde(flatten)]
    pub counts: AudienceCounts,
    /// The time in which the app's pace sends to so many devices, in whole seconds; null if the app has no
    /// pace.
    pub seconds_at_pace: Option<u64>,
}

impl AudienceReport {
    /// Makes the report for an app with this pace.
    pub fn of(counts: AudienceCounts, pace: Option<NonZeroU32>) -> Self {
        let seconds_at_pace = pace.map(|pace| counts.devices.div_ceil(u64::from(pace.get())));
        Self { counts, seconds_at_pace }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_one_json_form_and_rounds_the_time_at_a_pace_up() {
        let mut targeting = Targeting::all_devices();
        targeting.set(Attribute::OsVersion, vec!["34".into()]);
        let mut counts = AudienceCounts::none(&targeting);
        let mut slice = counts.clone();
        slice.add_devices(TransportKind::Fcm, 3);
        slice.add_devices(TransportKind::Mqtt, 0);
        slice.after_each_criterion[0].devices = 3;
        counts.add(&slice);
        counts.add(&slice);
        let report = AudienceReport::of(counts.clone(), NonZeroU32::new(4));
        let json = serde_json::json!({
            "devices": 6,
            "by_transport": { "fcm": 6 },
            "after_each_criterion": [{ "criterion": "os_version", "devices": 6 }],
            "seconds_at_pace": 2,
        });
        assert_eq!(serde_json::to_value(&report).unwrap(), json);
        assert_eq!(serde_json::from_value::<AudienceReport>(json).unwrap(), report);
        assert_eq!(AudienceReport::of(counts, None).seconds_at_pace, None);
    }
}
