//! The hints of a push: how it arrives and is shown, at any push type.

use push_model::{
    hints::{Hints, MAX_COLLAPSE_KEY_LEN, Priority},
    text::Text,
};
use url::Url;

use super::{json::illegal, whole_number::WholeNumber};
use crate::rejection::Rejection;

/// The longest name of a channel, a category or a sound, in bytes.
const MAX_NAME_LEN: usize = 256;
/// The longest URL of a picture, in bytes: half of what FCM and APNs carry in all.
const MAX_IMAGE_LEN: usize = 2048;
/// The largest number on an icon.
const MAX_BADGE: u32 = 1_000_000;

/// The hints as the body has them.
pub(super) struct HintFields<'a> {
    pub(super) priority: Option<Text<'a>>,
    pub(super) collapse_key: Option<Text<'a>>,
    pub(super) channel_id: Option<Text<'a>>,
    pub(super) category: Option<Text<'a>>,
    pub(super) image: Option<Text<'a>>,
    pub(super) sound: Option<Text<'a>>,
    pub(super) badge: Option<WholeNumber>,
}

impl<'a> HintFields<'a> {
    pub(super) fn check(self) -> Result<Hints<'a>, Rejection> {
        Ok(Hints {
            priority: self.priority.map(priority).transpose()?,
            collapse_key: name(self.collapse_key, "collapse_key", MAX_COLLAPSE_KEY_LEN)?,
            channel_id: name(self.channel_id, "channel_id", MAX_NAME_LEN)?,
            category: name(self.category, "category", MAX_NAME_LEN)?,
            image: self.image.map(image).transpose()?,
            sound: name(self.sound, "sound", MAX_NAME_LEN)?,
            badge: self.badge.map(badge).transpose()?,
        })
    }
}

fn priority(text: Text<'_>) -> Result<Priority, Rejection> {
    match &*text {
        "normal" => Ok(Priority::Normal),
        "high" => Ok(Priority::High),
        _ => Err(illegal("priority must be normal or high")),
    }
}

fn name<'a>(
    text: Option<Text<'a>>,
    field: &str,
    most: usize,
) -> Result<Option<Text<'a>>, Rejection> {
    match text {
        Some(text) if !(1..=most).contains(&text.len()) || text.chars().any(char::is_control) => {
            Err(illegal(format!("{field} must be 1 to {most} bytes without control characters")))
        }
        text => Ok(text),
    }
}

fn image(text: Text<'_>) -> Result<Text<'_>, Rejection> {
    // The parser takes white space and removes it; a device gets the text as it is.
    let is_plain = text.len() <= MAX_IMAGE_LEN
        && !text.chars().any(|char| char.is_control() || char.is_whitespace());
    let is_https = || Url::parse(&text).is_ok_and(|url| url.scheme() == "https" && url.has_host());
    if is_plain && is_https() {
        return Ok(text);
    }
    Err(illegal(format!("image must be an https: URL of at most {MAX_IMAGE_LEN} bytes")))
}

fn badge(WholeNumber(number): WholeNumber) -> Result<u32, Rejection> {
    let badge = u32::try_from(number).ok().filter(|badge| *badge <= MAX_BADGE);
    badge.ok_or_else(|| illegal(format!("badge must be a whole number from 0 to {MAX_BADGE}")))
}
