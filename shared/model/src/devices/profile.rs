//! What an app says of a device beside the six attributes: its custom attributes, its topics, and its user.
//!
//! A [`ProfileChange`] is what a request changes of it. What a request does not name stays as it is stored, so a
//! phone that registers again does not take away what the app's backend has set.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    attributes::Attribute,
    custom::{CustomId, Declarations, MAX_CUSTOM_ATTRIBUTES},
    device::Device,
    ids::{Topic, UserId},
};

/// The most topics that a device may have.
pub const MAX_TOPICS: usize = 100;

/// The most devices of a user.
pub const MAX_USER_DEVICES: usize = 100;

/// The profile of a device. Its JSON is for files and stores: it has ids, and what was normalised.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct Profile {
    /// Normalised values of custom attributes, in the order of their ids, each id once.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub custom: Vec<(CustomId, Arc<str>)>,
    /// The topics, sorted, each once.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub topics: Vec<Topic>,
    /// The user.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub user_id: Option<UserId>,
}

impl Profile {
    /// Returns true if a store can keep it: in order, each id and topic once, no more than a device may have.
    pub fn is_storable(&self) -> bool {
        let Self { custom, topics, .. } = self;
        let is_value = |value: &str| !value.is_empty() && value.len() <= Attribute::MAX_LEN;
        custom.len() <= MAX_CUSTOM_ATTRIBUTES
            && topics.len() <= MAX_TOPICS
            && custom.is_sorted_by(|(one, _), (next, _)| one < next)
            && topics.is_sorted_by(|one, next| one < next)
            && custom.iter().all(|(_, value)| is_value(value))
    }

    /// Takes away the values of attributes that the app does not declare. A store may have some until a sweep.
    pub fn retain_declared(&mut self, declared: &Declarations) {
        self.custom.retain(|(id, _)| declared.by_id(*id).is_some());
    }

    /// Returns true if the app says nothing of the device.
    pub fn is_empty(&self) -> bool {
        self.custom.is_empty() && self.topics.is_empty() && self.user_id.is_none()
    }

    /// The value of a custom attribute.
    pub fn get(&self, id: CustomId) -> Option<&str> {
        let at = self.custom.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.custom.get(at).map(|(_, value)| &**value)
    }

    /// Returns true if the device has the topic.
    pub fn has_topic(&self, topic: &str) -> bool {
        self.topics.binary_search_by(|known| known.as_str().cmp(topic)).is_ok()
    }
}

/// A change of the custom attributes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CustomChange {
    /// They stay.
    #[default]
    Keep,
    /// These take the place of all.
    Replace(Vec<(CustomId, Arc<str>)>),
    /// Those that are named are set, or taken away where there is no value.
    Merge(Vec<(CustomId, Option<Arc<str>>)>),
}

/// A change of the topics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TopicsChange {
    /// They stay.
    #[default]
    Keep,
    /// These take the place of all.
    Replace(Vec<Topic>),
    /// Some are taken away, then others are added.
    Edit {
        /// Added.
        add: Vec<Topic>,
        /// Taken away.
        remove: Vec<Topic>,
    },
}

/// A change of the user.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum UserChange {
    /// The user stays.
    #[default]
    Keep,
    /// The device now belongs to this user, or to none.
    Set(Option<UserId>),
}

/// A change of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProfileChange {
    /// Of the custom attributes.
    pub custom: CustomChange,
    /// Of the topics.
    pub topics: TopicsChange,
    /// Of the user.
    pub user_id: UserChange,
}

impl ProfileChange {
    /// The change that leaves nothing of what is stored.
    pub fn replace(profile: Profile) -> Self {
        let Profile { custom, topics, user_id } = profile;
        Self {
            custom: CustomChange::Replace(custom),
            topics: TopicsChange::Replace(topics),
            user_id: UserChange::Set(user_id),
        }
    }

    /// Returns true if everything stays.
    pub fn keeps_all(&self) -> bool {
        *self == Self::default()
    }

    /// Returns a profile after this change, and how many topics it would have beyond [`MAX_TOPICS`]: those are
    /// left out, and none that the device had before the change.
    pub fn apply(&self, before: &Profile) -> (Profile, usize) {
        let custom = match &self.custom {
            CustomChange::Keep => before.custom.clone(),
            CustomChange::Replace(values) => sorted_values(values.clone()),
            CustomChange::Merge(changes) => {
                // Of several changes of one attribute the last one counts.
                let is_named = |id| changes.iter().any(|(changed, _)| *changed == id);
                let mut custom: Vec<_> =
                    before.custom.iter().filter(|(id, _)| !is_named(*id)).cloned().collect();
                for (at, (id, value)) in changes.iter().enumerate() {
                    let is_last = !changes[at + 1..].iter().any(|(later, _)| later == id);
                    custom.extend(value.clone().filter(|_| is_last).map(|value| (*id, value)));
                }
                sorted_values(custom)
            }
        };
        let (mut topics, mut added) = match &self.topics {
            TopicsChange::Keep => (before.topics.clone(), Vec::new()),
            TopicsChange::Replace(all) => {
                all.iter().cloned().partition(|topic| before.has_topic(topic.as_str()))
            }
            TopicsChange::Edit { add, remove } => {
                let kept = before.topics.iter().filter(|topic| !remove.contains(topic));
                (kept.cloned().collect(), add.clone())
            }
        };
        topics.sort_unstable();
        topics.dedup();
        added.sort_unstable();
        added.dedup();
        added.retain(|topic| topics.binary_search(topic).is_err());
        let room = MAX_TOPICS.saturating_sub(topics.len());
        let beyond = added.len().saturating_sub(room);
        added.truncate(room);
        topics.extend(added);
        topics.sort_unstable();
        let user_id = match &self.user_id {
            UserChange::Keep => before.user_id.clone(),
            UserChange::Set(user_id) => user_id.clone(),
        };
        (Profile { custom, topics, user_id }, beyond)
    }
}

/// Values in the order of their ids; of several of one id the last one stays.
fn sorted_values(mut values: Vec<(CustomId, Arc<str>)>) -> Vec<(CustomId, Arc<str>)> {
    values.reverse();
    values.sort_by_key(|(id, _)| *id);
    values.dedup_by_key(|(id, _)| *id);
    values
}

/// A registration: a device, and what it changes of its profile. The profile of `device` has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceWrite {
    /// The device.
    pub device: Device,
    /// What changes of its profile.
    pub change: ProfileChange,
}

impl From<Device> for DeviceWrite {
    /// Replaces a device whole.
    fn from(device: Device) -> Self {
        let change = ProfileChange::replace(device.profile.clone());
        Self { device, change }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(names: &[&str]) -> Vec<Topic> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    fn values(of: &[(u16, &str)]) -> Vec<(CustomId, Arc<str>)> {
        of.iter().map(|(id, value)| (CustomId(*id), Arc::from(*value))).collect()
    }

    #[test]
    fn what_a_change_does_not_name_stays() {
        let before = Profile {
            custom: values(&[(1, "pro"), (2, "7")]),
            topics: topics(&["a", "b"]),
            user_id: Some("u".parse().unwrap()),
        };
        assert_eq!(ProfileChange::default().apply(&before), (before.clone(), 0));
        let merge = vec![
            (CustomId(3), Some("x".into())),
            (CustomId(1), None),
            (CustomId(3), Some("y".into())),
        ];
        let change = ProfileChange {
            custom: CustomChange::Merge(merge),
            topics: TopicsChange::Edit { add: topics(&["c", "a"]), remove: topics(&["b", "z"]) },
            user_id: UserChange::Set(None),
        };
        let after = Profile {
            custom: values(&[(2, "7"), (3, "y")]),
            topics: topics(&["a", "c"]),
            user_id: None,
        };
        assert_eq!(change.apply(&before), (after.clone(), 0));
        assert_eq!(ProfileChange::replace(after.clone()).apply(&before), (after, 0));
    }

    #[test]
    fn a_device_gets_no_topic_beyond_the_hundredth_and_loses_none_of_those_it_has() {
        let many: Vec<Topic> =
            (0..MAX_TOPICS).map(|n| format!("t{n:03}").parse().unwrap()).collect();
        let before = Profile { topics: many, ..Profile::default() };
        let edit = |add: &[&str], remove: &[&str]| {
            let topics = TopicsChange::Edit { add: topics(add), remove: topics(remove) };
            ProfileChange { topics, ..ProfileChange::default() }.apply(&before)
        };
        assert_eq!(edit(&["a", "b"], &[]), (before.clone(), 2));
        let (after, beyond) = edit(&["a", "b"], &["t000"]);
        assert_eq!((after.topics.len(), beyond), (MAX_TOPICS, 1));
        assert!(after.has_topic("a") && !after.has_topic("t000"));
    }
}
