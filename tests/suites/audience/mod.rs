//! Attributes of an app's own, topics, users and localised text from end to end: the scaled form on RabbitMQ and
//! Redis, and the standalone form. Their devices are reached through a webhook, whose receiver says who got what.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

mod filters;
mod languages;
mod profiles;
mod service;
mod tokens;
mod users;

/// Makes a test of a behaviour for each form of the service.
macro_rules! in_both_forms {
    ($($behaviour:ident: $scaled:ident, $embedded:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $scaled() {
            $behaviour(&$crate::audience::service::Service::scaled().await).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn $embedded() {
            $behaviour(&$crate::audience::service::Service::embedded().await).await;
        }
    )*};
}

use in_both_forms;
