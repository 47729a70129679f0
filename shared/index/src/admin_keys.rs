//! The keys of the admin API.

use async_trait::async_trait;
use push_model::{
    admin_key::{AdminKey, KeyDigest, UsedAdminKey},
    ids::SecretName,
    time::UnixMillis,
};
use push_store::IndexError;

/// What became of a new key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminKeyAdded {
    /// It is stored.
    Added,
    /// There is one of this name.
    NameTaken,
    /// There are [`MAX_ADMIN_KEYS`](push_model::admin_key::MAX_ADMIN_KEYS).
    TooMany,
}

/// The keys of the admin API. A key is found by its digest in one request, so a revoked one opens nothing from
/// that moment on.
#[async_trait]
pub trait AdminKeys: Send + Sync {
    /// Stores a new key.
    ///
    /// # Errors
    /// If the index did not answer; the key may be stored all the same.
    async fn add_admin_key(&self, key: &AdminKey) -> Result<AdminKeyAdded, IndexError>;

    /// Returns the key with this digest.
    ///
    /// # Errors
    /// If the index did not answer, or the record cannot be read.
    async fn admin_key(&self, digest: &KeyDigest) -> Result<Option<AdminKey>, IndexError>;

    /// Lists all keys by name, each with its last use. Unreadable records are left out.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn admin_keys(&self) -> Result<Vec<UsedAdminKey>, IndexError>;

    /// Removes a key. False if there is none of this name.
    ///
    /// # Errors
    /// If the index did not answer; the key may be removed all the same.
    async fn remove_admin_key(&self, name: &SecretName) -> Result<bool, IndexError>;

    /// Notes when the key with this name and digest was last used; nothing for a key that was removed.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn note_admin_key_use(
        &self,
        key: &AdminKey,
        used_at: UnixMillis,
    ) -> Result<(), IndexError>;
}
