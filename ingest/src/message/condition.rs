//! The audience of a push. Unknown fields are errors here: if a misspelt criterion were ignored,
//! the push would reach more devices than it should.

use push_model::{
    attributes::Attribute,
    ids::ClientId,
    message::Audience,
    targeting::{MAX_TARGETING_VALUES, Targeting},
    text::Text,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    json::{Object, illegal, read_object, read_value, required},
    notes::Notes,
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
    targeting: Option<&'a RawValue>,
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
}

impl Condition<'_> {
    pub(super) fn check(self, rules: Rules, notes: &mut Notes) -> Result<Audience, Rejection> {
        let kind = self.kind.map_or(0, |WholeNumber(kind)| kind);
        for (field, of, is_given) in [
            ("condition.targeting", 1, self.targeting.is_some()),
            ("condition.client_ids", 2, self.client_ids.is_some()),
        ] {
            if is_given && kind != of {
                notes.without_effect(field, &format!("condition.type {kind}"));
            }
        }
        match self.kind.ok_or_else(|| required("condition.type"))? {
            WholeNumber(0) => Ok(Audience::All),
            WholeNumber(1) => {
                let raw = self.targeting.ok_or_else(|| {
                    illegal("condition.targeting is required with condition.type 1 (targeting)")
                })?;
                read_targeting(raw).map(Audience::Targeting)
            }
            WholeNumber(2) => {
                let raw = self.client_ids.ok_or_else(|| {
                    illegal("condition.client_ids is required with condition.type 2 (users)")
                })?;
                read_clients(raw, rules).map(Audience::Clients)
            }
            _ => Err(illegal("condition.type must be 0 (all), 1 (targeting) or 2 (users)")),
        }
    }
}

fn read_targeting(raw: &RawValue) -> Result<Targeting, Rejection> {
    let Object(lists, _) = read_object::<TargetingLists<'_>>(raw.get(), "condition.targeting")?;
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

fn read_clients(raw: &RawValue, rules: Rules) -> Result<Vec<ClientId>, Rejection> {
    let mut clients: Vec<ClientId> = read_value(raw.get(), "condition.client_ids")?;
    clients.sort_unstable();
    clients.dedup();
    if clients.is_empty() {
        return Err(illegal("condition.client_ids must name at least one device"));
    }
    if clients.len() > rules.max_client_ids {
        let limit = rules.max_client_ids;
        return Err(Rejection::TooManyClients { given: clients.len(), limit });
    }
    Ok(clients)
}
