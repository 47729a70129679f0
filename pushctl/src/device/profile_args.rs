//! Flags about the attributes of an app's own, the topics and the user of a device.

use push_model::ids::{Topic, UserId};
use serde_json::{Map, Value, json};

use super::OneArgs;

/// An attribute and its value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Assignment {
    name: String,
    value: Value,
}

/// A change of a device's profile, given by flags.
#[derive(Debug, clap::Args)]
pub struct PatchArgs {
    /// Set an attribute of the app's own, or take it away (NAME=): 7 and true are no strings, "7" is one
    #[arg(long, value_name = "NAME=VALUE", num_args = 1.., value_parser = assignment)]
    attribute: Vec<Assignment>,
    /// Add topics
    #[arg(long, value_name = "TOPIC", num_args = 1.., value_delimiter = ',')]
    add_topic: Vec<Topic>,
    /// Take topics away
    #[arg(long, value_name = "TOPIC", num_args = 1.., value_delimiter = ',')]
    remove_topic: Vec<Topic>,
    /// Give the device to this user
    #[arg(long, value_name = "USER_ID")]
    user: Option<UserId>,
    /// Take the device from its user
    #[arg(long, conflicts_with = "user")]
    no_user: bool,
    // Behind the others, because its heading holds for what follows.
    #[command(flatten)]
    pub(super) one: OneArgs,
}

impl PatchArgs {
    /// Returns the body of a request.
    pub(super) fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        if !self.attribute.is_empty() {
            fields.insert("attributes".to_owned(), object(&self.attribute));
        }
        if !self.add_topic.is_empty() || !self.remove_topic.is_empty() {
            let edit = json!({ "add": self.add_topic, "remove": self.remove_topic });
            fields.insert("topics".to_owned(), edit);
        }
        if self.user.is_some() || self.no_user {
            fields.insert("user_id".to_owned(), json!(self.user));
        }
        fields
    }
}

/// Returns assignments as the member `attributes`.
pub(super) fn object(assignments: &[Assignment]) -> Value {
    assignments.iter().map(|one| (one.name.clone(), one.value.clone())).collect()
}

/// Parses NAME=VALUE. A value that is JSON is taken as that, everything else as a string, and nothing as `null`.
pub(super) fn assignment(text: &str) -> Result<Assignment, String> {
    let (name, value) = text.split_once('=').ok_or("must be NAME=VALUE")?;
    let value = match value {
        "" => Value::Null,
        text => match serde_json::from_str(text) {
            Ok(value @ (Value::Number(_) | Value::Bool(_) | Value::String(_))) => value,
            _ => Value::from(text),
        },
    };
    Ok(Assignment { name: name.to_owned(), value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_a_flag_is_a_number_a_string_or_nothing() {
        let value = |text: &str| assignment(text).unwrap().value;
        assert_eq!(value("level=7"), json!(7));
        assert_eq!(value("plan=pro"), json!("pro"));
        assert_eq!(value("room=\"7\""), json!("7"));
        assert_eq!(value("seen=2026-11-28T08:00:00Z"), json!("2026-11-28T08:00:00Z"));
        assert_eq!(value("text=[1]"), json!("[1]"));
        assert_eq!(value("plan="), Value::Null);
        assert!(assignment("plan").is_err());
    }
}
