//! The JSON of a device's profile, in a registration, in an import and in a change, and its check.
//!
//! What cannot be stored is left out with a warning, as an attribute whose text cannot be read: the device would
//! otherwise get no pushes at all. Only the user is refused, because a push for another user would reach it.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, de};
use serde_json::{Value, value::RawValue};

use super::{BadDevice, DeviceDraft};
use crate::{
    custom::{AttributeName, BadCustomValue, CustomId, Declarations},
    ids::{BadId, Topic, UserId},
    profile::{CustomChange, ProfileChange, TopicsChange, UserChange},
    text::Text,
};

/// The most topics in a list. A device has fewer, so no list that adds or removes what a device can have is longer.
pub const MAX_LISTED_TOPICS: usize = 1000;

/// The members of an object whose names a client chooses, in the order of their names, each name once.
#[derive(Debug, Clone, Default)]
pub struct NamedValues<'a>(Vec<(Text<'a>, &'a RawValue)>);

impl<'a> NamedValues<'a> {
    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names and values, without those that are `null`.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        let given = self.0.iter().filter(|(_, value)| value.get() != "null");
        given.map(|(name, value)| (&**name, *value))
    }
}

/// Topics that a device gets, and those that it loses.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TopicsEdit<'a> {
    /// It gets these.
    #[serde(borrow)]
    pub add: Option<Vec<Text<'a>>>,
    /// It loses these.
    #[serde(borrow)]
    pub remove: Option<Vec<Text<'a>>>,
}

/// A change of a device's profile as a request has it, not checked yet. What is absent stays as it is.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProfileDraft<'a> {
    /// Required where many devices are changed; otherwise the path names the device.
    #[serde(borrow)]
    pub client_id: Option<Text<'a>>,
    /// Values to set; `null` takes one away.
    #[serde(borrow)]
    pub attributes: Option<NamedValues<'a>>,
    /// Topics to add and to remove.
    #[serde(borrow)]
    pub topics: Option<TopicsEdit<'a>>,
    /// The user, or `null` for none.
    #[serde(borrow, deserialize_with = "nullable")]
    pub user_id: Option<Option<Text<'a>>>,
}

/// A change whose members were checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckedProfile {
    /// The change.
    pub change: ProfileChange,
    /// Warnings for its sender.
    pub warnings: Vec<ProfileWarning>,
}

/// A part of a profile that is not stored; the message is for the sender.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileWarning {
    /// The app has no such attribute.
    #[error("attributes.{0}: the app declares no attribute of this name, so it is not stored")]
    Undeclared(String),
    /// The value is none of the attribute's type.
    #[error("attributes.{0} {1}; it is stored as absent")]
    Value(AttributeName, BadCustomValue),
    /// The text is no topic.
    #[error("{member}[{position}] {problem}; it is left out")]
    Topic {
        /// The path of the list.
        member: &'static str,
        /// The place in the list, from 0.
        position: usize,
        /// The form that it must have.
        problem: BadId,
    },
}

impl DeviceDraft<'_> {
    /// Checks the profile of a registration, which takes the place of what is stored where it is given.
    ///
    /// # Errors
    /// If the user is no valid id, or there are too many topics.
    pub fn check_profile(&self, declared: &Declarations) -> Result<CheckedProfile, BadDevice> {
        let mut checked = CheckedProfile::default();
        if let Some(values) = &self.attributes {
            let values = checked.values(values, declared);
            let set = values.into_iter().filter_map(|(id, value)| Some((id, value?)));
            checked.change.custom = CustomChange::Replace(set.collect());
        }
        if let Some(topics) = &self.topics {
            checked.change.topics = TopicsChange::Replace(checked.topics(topics, "topics")?);
        }
        if let Some(user) = &self.user_id {
            checked.change.user_id = UserChange::Set(Some(user_id(user)?));
        }
        Ok(checked)
    }
}

impl ProfileDraft<'_> {
    /// Checks the change.
    ///
    /// # Errors
    /// If the user is no valid id, or there are too many topics.
    pub fn check(&self, declared: &Declarations) -> Result<CheckedProfile, BadDevice> {
        let mut checked = CheckedProfile::default();
        if let Some(values) = &self.attributes {
            checked.change.custom = CustomChange::Merge(checked.values(values, declared));
        }
        if let Some(TopicsEdit { add, remove }) = &self.topics {
            let add = checked.topics(add.as_deref().unwrap_or_default(), "topics.add")?;
            let remove = checked.topics(remove.as_deref().unwrap_or_default(), "topics.remove")?;
            checked.change.topics = TopicsChange::Edit { add, remove };
        }
        if let Some(user) = &self.user_id {
            checked.change.user_id = UserChange::Set(user.as_ref().map(user_id).transpose()?);
        }
        Ok(checked)
    }
}

impl CheckedProfile {
    /// Normalises the values of declared attributes. One that is none of its type is absent.
    fn values(
        &mut self,
        NamedValues(values): &NamedValues<'_>,
        declared: &Declarations,
    ) -> Vec<(CustomId, Option<Arc<str>>)> {
        let mut known = Vec::new();
        for (name, raw) in values {
            let Some(declared) = declared.find(name) else {
                self.warnings.push(ProfileWarning::Undeclared(shown(name)));
                continue;
            };
            let value = match raw.get() {
                "null" => None,
                json => match declared.value_type.normalise(&scalar(json)) {
                    Ok(value) => Some(value),
                    Err(problem) => {
                        let name = declared.name.clone();
                        self.warnings.push(ProfileWarning::Value(name, problem));
                        None
                    }
                },
            };
            known.push((declared.id, value));
        }
        known
    }

    fn topics(
        &mut self,
        texts: &[Text<'_>],
        member: &'static str,
    ) -> Result<Vec<Topic>, BadDevice> {
        if texts.len() > MAX_LISTED_TOPICS {
            let problem = format!("must have at most {MAX_LISTED_TOPICS} topics");
            return Err(BadDevice { field: member, problem });
        }
        let mut topics = Vec::with_capacity(texts.len());
        for (position, text) in texts.iter().enumerate() {
            match text.parse() {
                Ok(topic) => topics.push(topic),
                Err(problem) => {
                    self.warnings.push(ProfileWarning::Topic { member, position, problem });
                }
            }
        }
        Ok(topics)
    }
}

fn user_id(text: &Text<'_>) -> Result<UserId, BadDevice> {
    text.parse().map_err(|bad: BadId| BadDevice { field: "user_id", problem: bad.to_string() })
}

/// The value of a JSON text. No attribute has lists or objects as values, so those are not read.
fn scalar(json: &str) -> Value {
    match json.as_bytes().first() {
        Some(b'[' | b'{') => Value::Array(Vec::new()),
        _ => serde_json::from_str(json).unwrap_or_default(),
    }
}

/// The beginning of a name as it may be shown.
fn shown(name: &str) -> String {
    name.chars().filter(|char| !char.is_control()).take(AttributeName::MAX_LEN).collect()
}

/// Tells `null` from a member that is absent.
fn nullable<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<Text<'de>>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl<'de: 'a, 'a> Deserialize<'de> for NamedValues<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = NamedValues<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<NamedValues<'de>, A::Error> {
                let mut values = Vec::new();
                while let Some((name, value)) = map.next_entry::<Text<'de>, &RawValue>()? {
                    values.push((name, value));
                }
                values.sort_by(|(one, _), (other, _)| one.cmp(other));
                let twice = values.iter().zip(values.iter().skip(1)).find(|(a, b)| a.0 == b.0);
                match twice {
                    Some(((name, _), _)) => {
                        let name = shown(name);
                        Err(de::Error::custom(format_args!("has the key `{name}` twice")))
                    }
                    None => Ok(NamedValues(values)),
                }
            }
        }

        deserializer.deserialize_map(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::custom::ValueType;

    fn declared() -> Declarations {
        let mut declared = Declarations::default();
        for (name, value_type) in [("plan", ValueType::String), ("level", ValueType::Number)] {
            declared.add(name.parse().unwrap(), value_type).unwrap();
        }
        declared
    }

    fn put(json: &str) -> Result<CheckedProfile, BadDevice> {
        let draft: DeviceDraft<'_> = serde_json::from_str(json).unwrap();
        draft.check_profile(&declared())
    }

    fn patch(json: &str) -> Result<CheckedProfile, BadDevice> {
        let draft: ProfileDraft<'_> = serde_json::from_str(json).unwrap();
        draft.check(&declared())
    }

    fn warnings(checked: &CheckedProfile) -> Vec<String> {
        checked.warnings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_registration_changes_of_its_profile_what_it_names() {
        assert!(put(r#"{"country":"CN","attributes":null}"#).unwrap().change.keeps_all());
        let all =
            put(r#"{"attributes":{"plan":" pro ","level":null},"topics":[],"user_id":"u@1"}"#);
        let change = ProfileChange {
            custom: CustomChange::Replace(vec![(CustomId(1), "pro".into())]),
            topics: TopicsChange::Replace(Vec::new()),
            user_id: UserChange::Set(Some("u@1".parse().unwrap())),
        };
        assert_eq!(all, Ok(CheckedProfile { change, warnings: Vec::new() }));
    }

    #[test]
    fn a_change_sets_what_has_a_value_and_takes_away_what_is_null() {
        assert!(patch("{}").unwrap().change.keeps_all());
        let some = patch(
            r#"{"attributes":{"plan":null,"level":7},"topics":{"add":["f1"],"remove":["f2"]},"user_id":null}"#,
        );
        let values = vec![(CustomId(2), Some("7".into())), (CustomId(1), None)];
        let (add, remove) = (vec!["f1".parse().unwrap()], vec!["f2".parse().unwrap()]);
        let change = ProfileChange {
            custom: CustomChange::Merge(values),
            topics: TopicsChange::Edit { add, remove },
            user_id: UserChange::Set(None),
        };
        assert_eq!(some, Ok(CheckedProfile { change, warnings: Vec::new() }));
    }

    #[test]
    fn what_cannot_be_stored_is_left_out_with_a_warning_and_a_bad_user_is_refused() {
        let checked =
            put(r#"{"attributes":{"plam":"pro","level":"7","plan":[[1]]},"topics":["a b","f1"]}"#);
        let checked = checked.unwrap();
        assert_eq!(checked.change.custom, CustomChange::Replace(Vec::new()));
        assert_eq!(checked.change.topics, TopicsChange::Replace(vec!["f1".parse().unwrap()]));
        let told = warnings(&checked);
        assert_eq!(told.len(), 4, "{told:?}");
        assert_eq!(
            told[0],
            "attributes.level must be a number, like 7 or 0.5; it is stored as absent"
        );
        assert!(told[1].starts_with("attributes.plam: the app declares no attribute"), "{told:?}");
        assert!(told[3].starts_with("topics[0] must be 1 to 64 characters of "), "{told:?}");
        assert_eq!(put(r#"{"user_id":"a b"}"#).unwrap_err().field, "user_id");
        assert_eq!(patch(r#"{"user_id":""}"#).unwrap_err().field, "user_id");
        let many = format!(r#"{{"topics":{{"remove":["a"{}]}}}}"#, r#","a""#.repeat(1000));
        assert_eq!(patch(&many).unwrap_err().field, "topics.remove");
    }

    #[test]
    fn members_of_another_form_are_no_profile() {
        for json in [
            r#"{"attributes":[]}"#,
            r#"{"attributes":{"plan":"a","plan":"b"}}"#,
            r#"{"topics":["a"]}"#,
            r#"{"topics":{"set":["a"]}}"#,
            r#"{"user_id":7}"#,
            r#"{"country":"CN"}"#,
        ] {
            assert!(serde_json::from_str::<ProfileDraft<'_>>(json).is_err(), "{json}");
        }
    }
}
