//! `notification.localized`: title and description by language.

use std::collections::BTreeMap;

use push_model::{
    attributes::Attribute,
    device::NamedValues,
    localized::{LocalText, Localized, MAX_LANGUAGES},
    text::Text,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    json::{Object, illegal, read_object},
    notes::{Notes, shown},
};
use crate::rejection::Rejection;

const PATH: &str = "notification.localized";

#[derive(Deserialize)]
struct TextFields<'a> {
    #[serde(borrow)]
    title: Option<Text<'a>>,
    #[serde(borrow)]
    desc: Option<Text<'a>>,
}

/// Reads the texts; none if there is no language.
pub(super) fn read_localized(
    raw: &RawValue,
    notes: &mut Notes,
) -> Result<Option<Localized>, Rejection> {
    let Object(languages, _) = read_object::<NamedValues<'_>>(raw.get(), PATH)?;
    if languages.len() > MAX_LANGUAGES {
        let given = languages.len();
        return Err(illegal(format!(
            "{PATH} has {given} languages, at most {MAX_LANGUAGES} are allowed"
        )));
    }
    let mut texts = BTreeMap::new();
    for (tag, raw) in languages.iter() {
        let path = format!("{PATH}.{}", shown(tag));
        let tag = Attribute::Language.normalise(tag);
        let tag = tag.map_err(|bad| illegal(format!("{path}: the language {bad}")))?;
        let Object(TextFields { title, desc }, known) =
            read_object::<TextFields<'_>>(raw.get(), &path)?;
        notes.unknown_fields(known, raw.get(), &path);
        if title.is_none() && desc.is_none() {
            return Err(illegal(format!("{path} must have title, desc or both")));
        }
        let owned = |text: Option<Text<'_>>| text.map(|text| (*text).to_owned());
        let text = LocalText { title: owned(title), desc: owned(desc) };
        if texts.insert(tag, text).is_some() {
            return Err(illegal(format!("{path} is a language that {PATH} has twice")));
        }
    }
    Ok((!texts.is_empty()).then_some(Localized(texts)))
}
