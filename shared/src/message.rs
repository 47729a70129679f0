//! An accepted push: what is sent, to whom, and until when.
//!
//! The bytes a device receives are made once, at ingest ([`Payload`]); from there to the
//! transport they are copied, never parsed and written again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    ids::{AppId, ClientId, MessageId},
    targeting::Targeting,
    time::UnixMillis,
};

/// What a device receives, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload {
    /// For the device to drop repeats.
    pub message_id: MessageId,
    /// The app it belongs to.
    pub app_id: AppId,
    /// 1 notification, 2 data.
    #[serde(rename = "type")]
    pub kind: u8,
    /// With type 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub notification: Option<Notification>,
    /// With type 2.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub data: Option<BTreeMap<String, String>>,
    /// Unix milliseconds.
    pub accepted_at: UnixMillis,
    /// Unix milliseconds; nothing is sent after it.
    pub expires_at: UnixMillis,
}

/// The fields of a notification that have an effect; one that has none is not delivered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Notification {
    /// 1 system, 3 button.
    pub notification_type: u8,
    /// The first line.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub title: Option<String>,
    /// The text.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub desc: Option<String>,
    /// Button only: the picture.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub icon: Option<String>,
    /// Button only: what the button says.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub button_text: Option<String>,
    /// System only: the picture in the status bar.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub small_icon: Option<String>,
    /// System only: `#RRGGBB`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub small_icon_color: Option<String>,
    /// 1 open the app, 2 open a link.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub open_type: Option<u8>,
    /// The link, with open type 2.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub open_content: Option<String>,
}

/// Whom a push is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Audience {
    /// Every device of the app.
    All,
    /// Every device that matches.
    Targeting(Targeting),
    /// These devices, each once.
    Clients(Vec<ClientId>),
}
