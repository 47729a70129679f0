//! The users and the topics of an app's devices.

use async_trait::async_trait;
use push_model::{
    app::AppKey,
    ids::{ClientId, Topic, UserId},
};
use push_store::IndexError;

/// The most topics of an app, unless a program sets another limit.
pub const MAX_APP_TOPICS: usize = 10_000;

/// The devices of users, and the topics of devices.
#[async_trait]
pub trait Users: Send + Sync {
    /// Returns the devices of each of these users, in the order of their client ids: those whose record names the user
    /// at this moment. They are at most [`MAX_USER_DEVICES`](push_model::profile::MAX_USER_DEVICES), unless the index lost
    /// its last writes since: then a user may have got others beside them.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn user_devices(
        &self,
        app: &AppKey,
        users: &[UserId],
    ) -> Result<Vec<Vec<ClientId>>, IndexError>;

    /// Returns those of these topics that no device of the app has. For some minutes after its last device lost a
    /// topic it may not be among them, and an engine that cannot tell returns none.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn unknown_topics(
        &self,
        _app: &AppKey,
        _topics: &[Topic],
    ) -> Result<Vec<Topic>, IndexError> {
        Ok(Vec::new())
    }

    /// Removes a device, if its record names the user at that moment. False if it does not, if there is no such device,
    /// or if it was changed in the same moment.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn remove_device_of(
        &self,
        app: &AppKey,
        user: &UserId,
        client: &ClientId,
    ) -> Result<bool, IndexError>;

    /// Sets the most topics that an app may have, for what this program writes from now on. Topics that
    /// an app has already stay.
    fn limit_topics(&self, most: usize);
}
