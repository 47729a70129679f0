//! An accepted push: what is sent, to whom, and until when.
//!
//! Ingest makes the bytes that a device receives ([`Payload`]) once. From there to the transport
//! they are copied, never parsed and written again, so the texts of a notification are those of the
//! request, to the byte.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::{
    hints::Hints,
    ids::{AppId, AudienceKind, ClientId, MessageId, UserId},
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
    /// These devices, each once, some of them because of their user.
    Users(NamedUsers),
}

/// Named devices and devices of users. A device of a user gets the message only if it still belongs to the user
/// when it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedUsers {
    /// The devices that are named themselves, then those of each user.
    pub clients: Vec<ClientId>,
    /// The users, with the number of their devices at the end of the list.
    pub users: Vec<(UserId, u32)>,
}

impl NamedUsers {
    /// The devices that are named themselves.
    pub fn directly_named(&self) -> &[ClientId] {
        let of_users: usize =
            self.users.iter().map(|(_, devices)| usize::try_from(*devices).unwrap_or(0)).sum();
        self.clients.get(..self.clients.len().saturating_sub(of_users)).unwrap_or_default()
    }

    /// Returns for each device that is not named itself the user to whom it must belong.
    pub fn expected_users(&self) -> HashMap<&ClientId, &UserId> {
        let of_users = self.clients.iter().skip(self.directly_named().len());
        let expected = self.users.iter().flat_map(|(user, devices)| {
            std::iter::repeat_n(user, usize::try_from(*devices).unwrap_or(0))
        });
        of_users.zip(expected).collect()
    }
}

impl Audience {
    /// Tells pushes to named devices from broadcasts.
    pub fn kind(&self) -> AudienceKind {
        match self {
            Self::All | Self::Targeting(_) => AudienceKind::Broadcast,
            Self::Clients(_) | Self::Users(_) => AudienceKind::Named,
        }
    }

    /// The named devices; none for a broadcast.
    pub fn clients(&self) -> Option<&[ClientId]> {
        match self {
            Self::Clients(clients) | Self::Users(NamedUsers { clients, .. }) => Some(clients),
            Self::All | Self::Targeting(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_must_still_belong_to_the_user_for_whom_it_is_in_the_list() {
        let user = |name: &str| name.parse::<UserId>().unwrap();
        let clients: Vec<ClientId> = "a b c d e".split(' ').map(|id| id.parse().unwrap()).collect();
        let named =
            NamedUsers { clients, users: vec![(user("u"), 2), (user("v"), 0), (user("w"), 1)] };
        assert_eq!(named.directly_named().len(), 2);
        let expected = named.expected_users();
        let of = |id: &str| expected.get(&id.parse::<ClientId>().unwrap()).copied();
        let (u, w) = (user("u"), user("w"));
        assert_eq!(["a", "b", "c", "d", "e"].map(of), [None, None, Some(&u), Some(&u), Some(&w)]);
    }
}
