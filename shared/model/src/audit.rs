//! The audit trail: who changed what an app may do, and when.
//!
//! An event says what was done to which app by which program for which user. It never holds a
//! secret, only the name of one.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{
    ids::{AppId, ClientId, MessageId, SecretName},
    time::UnixMillis,
};

/// The most events of the trail; the oldest go first.
pub const AUDIT_EVENTS: usize = 10_000;

/// An action of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// An app was made.
    AppCreated,
    /// The limits of an app were changed.
    AppChanged,
    /// An app may no longer push.
    AppDisabled,
    /// An app may push again.
    AppEnabled,
    /// An app and its devices were removed.
    AppRemoved,
    /// An app went to another store.
    AppMovedAway,
    /// An app came from another store.
    AppMovedIn,
    /// An app was written to a file, with hashes of its secrets and tokens of its devices.
    AppBackedUp,
    /// An app was read from a backup.
    AppRestored,
    /// The default secret of an app was replaced.
    SecretRotated,
    /// A named secret was added.
    SecretAdded,
    /// A named secret was removed.
    SecretRevoked,
    /// The first key that signs device credentials was made.
    DeviceKeyMade,
    /// Another key signs device credentials.
    DeviceKeyRotated,
    /// An account at a provider was set.
    AccountSet,
    /// An account at a provider was removed.
    AccountRemoved,
    /// An attribute of an app's own was declared.
    AttributeAdded,
    /// An attribute of an app's own was removed.
    AttributeRemoved,
    /// The accounts were sealed with the newest key.
    AccountsResealed,
    /// The first key that seals accounts was made.
    SealKeyMade,
    /// Another key seals accounts.
    SealKeyRotated,
    /// A message was recalled.
    MessageRecalled,
    /// Dead letters were moved back to their lanes.
    DeadLettersReplayed,
    /// Dead letters were deleted.
    DeadLettersDropped,
    /// A device was registered or replaced with a key of the admin API.
    DeviceStored,
    /// A device was removed with a key of the admin API.
    DeviceRemoved,
    /// All devices of a user were removed by an operator.
    UserRemoved,
    /// A key of the admin API was made.
    AdminKeyAdded,
    /// A key of the admin API was revoked.
    AdminKeyRevoked,
}

impl Action {
    /// The name in the trail and in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AppCreated => "app_created",
            Self::AppChanged => "app_changed",
            Self::AppDisabled => "app_disabled",
            Self::AppEnabled => "app_enabled",
            Self::AppRemoved => "app_removed",
            Self::AppMovedAway => "app_moved_away",
            Self::AppMovedIn => "app_moved_in",
            Self::AppBackedUp => "app_backed_up",
            Self::AppRestored => "app_restored",
            Self::SecretRotated => "secret_rotated",
            Self::SecretAdded => "secret_added",
            Self::SecretRevoked => "secret_revoked",
            Self::DeviceKeyMade => "device_key_made",
            Self::DeviceKeyRotated => "device_key_rotated",
            Self::AccountSet => "account_set",
            Self::AccountRemoved => "account_removed",
            Self::AttributeAdded => "attribute_added",
            Self::AttributeRemoved => "attribute_removed",
            Self::AccountsResealed => "accounts_resealed",
            Self::SealKeyMade => "seal_key_made",
            Self::SealKeyRotated => "seal_key_rotated",
            Self::MessageRecalled => "message_recalled",
            Self::DeadLettersReplayed => "dead_letters_replayed",
            Self::DeadLettersDropped => "dead_letters_dropped",
            Self::DeviceStored => "device_stored",
            Self::UserRemoved => "user_removed",
            Self::DeviceRemoved => "device_removed",
            Self::AdminKeyAdded => "admin_key_added",
            Self::AdminKeyRevoked => "admin_key_revoked",
        }
    }
}

/// An event of the trail. Fields that are unknown or do not apply are absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEvent {
    /// When it ended.
    pub at: UnixMillis,
    /// The name of the action: [`Action::name`], or a name that a newer version has written.
    pub action: String,
    /// True if it was done. If not, it may have been done in part.
    pub done: bool,
    /// The app.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub app: Option<AppId>,
    /// The name of the secret.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub secret: Option<String>,
    /// The message.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message: Option<MessageId>,
    /// The device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub client_id: Option<ClientId>,
    /// The key of the admin API that was made or revoked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub admin_key: Option<SecretName>,
    /// The program that did it.
    pub program: String,
    /// The user of the operating system that ran it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub user: Option<String>,
    /// The key of the admin API with which the program was called.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<SecretName>,
    /// The address from which it was called with that key.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<IpAddr>,
    /// The machine on which it ran.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<String>,
}
