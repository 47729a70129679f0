//! An accepted push: what is sent, to whom, and until when.
//!
//! Ingest makes the bytes that a device receives ([`Payload`]) once. From there to the transport
//! they are copied, never parsed and written again, so the texts of a notification are those of the
//! request, to the byte.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    hints::Hints,
    ids::{AppId, AudienceKind, ClientId, MessageId},
    targeting::Targeting,
    text::{Literal, Text},
    time::UnixMillis,
};

/// The JSON that a device receives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload<'a> {
    /// By which the device recognises a repeated delivery.
    pub message_id: MessageId,
    /// The app it belongs to.
    pub app_id: AppId,
    /// 1 notification, 2 data.
    #[serde(rename = "type")]
    pub kind: u8,
    /// With type 1.
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    pub notification: Option<Notification<'a>>,
    /// With type 2.
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    pub data: Option<BTreeMap<Text<'a>, Text<'a>>>,
    /// As fields of their own, each only if the push has it.
    #[serde(flatten, borrow)]
    pub hints: Hints<'a>,
    /// Unix milliseconds.
    pub accepted_at: UnixMillis,
    /// By which a device sorts messages: Unix microseconds at acceptance, strictly increasing within one
    /// ingest.
    pub sequence: u64,
    /// Unix milliseconds; nothing is sent after it.
    pub expires_at: UnixMillis,
}

/// The fields of a notification that have an effect. Fields of the request without one are dropped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Notification<'a> {
    /// 1 system, 3 button.
    pub notification_type: u8,
    /// The first line.
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    pub title: Option<Literal<'a>>,
    /// The text.
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    pub desc: Option<Literal<'a>>,
    /// Button only: the picture.
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    pub icon: Option<Literal<'a>>,
    /// Button only: the button's label.
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    pub button_text: Option<Literal<'a>>,
    /// System only: the picture in the status bar.
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    pub small_icon: Option<Literal<'a>>,
    /// System only: `#RRGGBB`.
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    pub small_icon_color: Option<Literal<'a>>,
    /// 1 open the app, 2 open a link.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub open_type: Option<u8>,
    /// The link, with open type 2.
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    pub open_content: Option<Literal<'a>>,
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

impl Audience {
    /// Tells pushes to named devices from broadcasts.
    pub fn kind(&self) -> AudienceKind {
        match self {
            Self::All | Self::Targeting(_) => AudienceKind::Broadcast,
            Self::Clients(_) => AudienceKind::Named,
        }
    }
}
