//! The users of an app's devices.

use async_trait::async_trait;
use push_model::{
    app::AppKey,
    ids::{ClientId, UserId},
};
use push_store::IndexError;

/// The most topics of an app, unless a program sets another limit.
pub const MAX_APP_TOPICS: usize = 10_000;

/// The devices of users.
#[async_trait]
pub trait Users: Send + Sync {
    /// Returns the devices of each of these users, in the order of their client ids: those whose record names the user
    /// at this moment, at most [`MAX_USER_DEVICES`](push_model::profile::MAX_USER_DEVICES).
    ///
    /// # Errors
    /// If the index did not answer.
    async fn user_devices(
        &self,
        app: &AppKey,
        users: &[UserId],
    ) -> Result<Vec<Vec<ClientId>>, IndexError>;

    /// Sets the most topics that an app may have, for what this program writes from now on. Topics that
    /// an app has already stay.
    fn limit_topics(&self, most: usize);
}
