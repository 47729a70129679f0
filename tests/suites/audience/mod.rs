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

/// Makes a test of each behaviour for each form of the service.
macro_rules! in_both_forms {
    ($($behaviour:ident)*) => {
        mod on_rabbitmq_and_redis {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $behaviour() {
                super::$behaviour(&$crate::audience::service::Service::scaled().await).await;
            })*
        }

        mod in_the_standalone_form {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $behaviour() {
                super::$behaviour(&$crate::audience::service::Service::embedded().await).await;
            })*
        }
    };
}

use in_both_forms;
