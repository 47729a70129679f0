//! The audience of a push. Unknown fields are errors here: if a misspelt criterion were ignored,
//! the push would reach more devices than it should.

use std::sync::Arc;

use push_model::{
    attributes::Attribute,
    ids::{ClientId, UserId},
    message::Audience,
    targeting::{MAX_TARGETING_VALUES, Targeting},
    text::Text,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::{
    AppRules, Wanted,
    filter::read_filter,
    json::{Object, illegal, read_object, read_value, required},
    notes::Notes,
    sample::read_sample,
    whole_number::WholeNumber,
};
use crate::{rejection::Rejection, settings::Rules};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Condition<'a> {
    #[serde(rename = "type")]
    kind: Option<WholeNumber>,
    #[serde(borrow)]
    client_ids: Option<&'a RawValue>,
    #[serde(borrow)]
    user_ids: Option<&'a RawValue>,
    #[serde(borrow)]
    targeting: Option<&'a RawValue>,
    #[serde(borrow)]
    sample: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetingLists<'a> {
    #[serde(borrow)]
    country: Option<Vec<Text<'a>>>,
    #[serde(borrow)]
    language: Option<Vec<Text<'a>>>,
    #[serde(borrow)]
    brand: Option<Vec<Text<'a>>>,
    #[serde(borrow)]
    model: Option<Vec<Text<'a>>>,
    #[serde(borrow)]
    os_version: Option<Vec<Text<'a>>>,
    #[serde(borrow)]
    app_version: Option<Vec<Text<'a>>>,
    #[serde(borrow)]
    filter: Option<&'a RawValue>,
}

impl Condition<'_> {
    pub(super) fn check(self, app: AppRules<'_>, notes: &mut Notes) -> Result<Wanted, Rejection> {
        let kind = self.kind.map_or(0, |WholeNumber(kind)| kind);
        for (field, of, is_given) in [
            ("condition.targeting", 1, self.targeting.is_some()),
            ("condition.client_ids", 2, self.client_ids.is_some()),
            ("condition.user_ids", 2, self.user_ids.is_some()),
        ] {
            if is_given && kind != of {
                notes.without_effect(field, &format!("condition.type {kind}"));
            }
        }
        match self.kind.ok_or_else(|| required("condition.type"))? {
            WholeNumber(0) => {
                refuse_unused_filter(self.targeting)?;
                let sample = self.sample.map(read_sample).transpose()?.flatten();
                if sample.is_none() {
                    return Ok(Audience::All.into());
                }
                let mut targeting = Targeting::all_devices();
                targeting.sample = sample;
                Ok(targeting.into())
            }
            WholeNumber(1) => {
                let raw = self.targeting.ok_or_else(|| {
                    illegal("condition.targeting is required with condition.type 1 (targeting)")
                })?;
                let mut targeting = read_targeting(raw, app)?;
                targeting.sample = self.sample.map(read_sample).transpose()?.flatten();
                Ok(targeting.into())
            }
            WholeNumber(2) => {
                refuse_unused_filter(self.targeting)?;
                if self.sample.is_some() {
                    return Err(illegal(
                        "condition.sample must not be used with condition.type 2 (users): the push \
                         would reach all of them",
                    ));
                }
                self.read_named(app.limits)
            }
            _ => Err(illegal("condition.type must be 0 (all), 1 (targeting) or 2 (users)")),
        }
    }

    /// Reads the devices and users that are named. They have one limit together.
    fn read_named(&self, rules: Rules) -> Result<Wanted, Rejection> {
        let clients: Option<Vec<ClientId>> = names(self.client_ids, "condition.client_ids")?;
        let users: Option<Vec<UserId>> = names(self.user_ids, "condition.user_ids")?;
        let (clients, users) = match (clients, users) {
            (None, None) => {
                return Err(illegal(
                    "condition.client_ids or condition.user_ids is required with condition.type 2 \
                     (users)",
                ));
            }
            (Some(clients), None) if clients.is_empty() => {
                return Err(illegal("condition.client_ids must name at least one device"));
            }
            (clients, users) => (clients.unwrap_or_default(), users.unwrap_or_default()),
        };
        if clients.is_empty() && users.is_empty() {
            return Err(illegal("condition.user_ids must name at least one user"));
        }
        let (given, limit) = (clients.len() + users.len(), rules.max_client_ids);
        if given > limit {
            let with_users = !users.is_empty();
            return Err(Rejection::TooManyClients { given, limit, with_users });
        }
        Ok(Wanted { audience: Audience::Clients(clients), users })
    }
}

/// Refuses a filter that the type of the condition does not use: the push would reach more devices than are
/// meant. What else the targeting holds has no effect then.
fn refuse_unused_filter(targeting: Option<&RawValue>) -> Result<(), Rejection> {
    #[derive(Deserialize)]
    struct Unused<'a> {
        #[serde(borrow)]
        filter: Option<&'a RawValue>,
    }
    let Some(json) = targeting.map(RawValue::get) else { return Ok(()) };
    let has_filter = match serde_json::from_str::<Object<Unused<'_>>>(json) {
        Ok(Object(Unused { filter }, _)) => filter.is_some(),
        // A targeting that cannot be read, for example because it has two.
        Err(_) => json.contains("\"filter\""),
    };
    match has_filter {
        true => Err(illegal(
            "condition.targeting.filter must be used with condition.type 1 (targeting) only",
        )),
        false => Ok(()),
    }
}

/// Reads ids, and sorts them without repeats.
fn names<T: DeserializeOwned + Ord>(
    raw: Option<&RawValue>,
    path: &str,
) -> Result<Option<Vec<T>>, Rejection> {
    let Some(raw) = raw else { return Ok(None) };
    let mut names: Vec<T> = read_value(raw.get(), path)?;
    names.sort_unstable();
    names.dedup();
    Ok(Some(names))
}

fn read_targeting(raw: &RawValue, app: AppRules<'_>) -> Result<Targeting, Rejection> {
    let Object(lists, _) = read_object::<TargetingLists<'_>>(raw.get(), "condition.targeting")?;
    let filter = lists.filter.map(|raw| read_filter(raw, app.attributes)).transpose()?;
    let lists = [
        (Attribute::Country, lists.country),
        (Attribute::Language, lists.language),
        (Attribute::Brand, lists.brand),
        (Attribute::Model, lists.model),
        (Attribute::OsVersion, lists.os_version),
        (Attribute::AppVersion, lists.app_version),
    ];
    let mut targeting = Targeting::all_devices();
    let mut largest = (0, "targeting");
    for (attribute, list) in lists {
        let mut wanted = Vec::new();
        for (i, text) in list.unwrap_or_default().into_iter().enumerate() {
            let value = attribute.normalise_wanted(&text).map_err(|problem| {
                illegal(format!("condition.targeting.{}[{i}] {problem}", attribute.name()))
            })?;
            wanted.push(value);
        }
        if !wanted.is_empty() {
            targeting.set(attribute, wanted);
            largest = largest.max((targeting.wanted(attribute).len(), attribute.name()));
        }
    }
    if let Some(filter) = filter {
        largest = largest.max((filter.len(), "filter"));
        targeting.filter = Some(Arc::new(filter));
    }
    // Counted here, because values that are equal once they are normalised count once.
    let count = targeting.len();
    if count > MAX_TARGETING_VALUES {
        let (of_largest, name) = largest;
        return Err(illegal(format!(
            "condition.targeting has {count} different values in all its lists, {of_largest} of them in \
             condition.targeting.{name}; at most {MAX_TARGETING_VALUES} are allowed"
        )));
    }
    Ok(targeting)
}
