//! Hints of a push to the systems that deliver and show it. They change how a message arrives, never whom
//! it reaches.

use serde::{Deserialize, Serialize};

use crate::text::Text;

/// The longest collapse key, in bytes: what APNs takes as `apns-collapse-id`.
pub const MAX_COLLAPSE_KEY_LEN: usize = 64;

/// The hints of a push, each absent if the push has none. docs/reference/hints.md has a table of what each
/// transport makes of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Hints<'a> {
    /// How soon the message must arrive.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub priority: Option<Priority>,
    /// A later message with this key takes the place of an earlier one, at most
    /// [`MAX_COLLAPSE_KEY_LEN`] bytes.
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    pub collapse_key: Option<Text<'a>>,
    /// The notification channel of an Android app.
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    pub channel_id: Option<Text<'a>>,
    /// The category whose actions an iOS app shows.
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    pub category: Option<Text<'a>>,
    /// The `https:` URL of a picture.
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    pub image: Option<Text<'a>>,
    /// The name of a sound that the app contains, or `default`.
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    pub sound: Option<Text<'a>>,
    /// The number on the app's icon; 0 removes it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub badge: Option<u32>,
}

/// How soon a message must arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// It may wait until the device wakes up by itself.
    Normal,
    /// It wakes the device up.
    High,
}
