//! Failures between this engine and its server, and the [`QueueError`] for each case.

use std::time::Duration;

use lapin::{
    ErrorKind,
    protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError},
};
use push_tls::{FileError, failure::TlsFailure};

use crate::{AccessRefused, QueueError};

/// Cloneable, because one failure may end several publishes.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum AmqpError {
    /// The URL or the namespace cannot be used.
    #[error("the queue's settings are wrong: {0}")]
    Settings(String),
    /// The URL names no host. Its check rejects such a URL.
    #[error("the queue's URL names no host")]
    NoHost,
    /// The connection or the channel could not be opened, or broke.
    #[error("the connection to RabbitMQ failed")]
    Broken(#[from] lapin::Error),
    /// Another service answers, or the server wants TLS.
    #[error("what answers there does not speak AMQP 0-9-1 without TLS")]
    OtherProtocol,
    /// The server properties could not be read.
    #[error("RabbitMQ was not reached")]
    Io(#[source] std::sync::Arc<std::io::Error>),
    /// Server and client do not trust each other, or the server does not speak TLS.
    #[error("no TLS connection to RabbitMQ")]
    Tls(#[source] TlsFailure),
    /// The certificates of this machine cannot be used.
    #[error("TLS to RabbitMQ cannot be set up")]
    TlsFiles(#[source] std::sync::Arc<FileError>),
    /// It announced that it takes no messages, and stores those sent only later.
    #[error("RabbitMQ takes no messages for now: {0}")]
    Blocked(std::sync::Arc<str>),
    /// It did not answer in time.
    #[error("RabbitMQ did not answer within {0:?}")]
    Late(Duration),
    /// It ended the consumer: its queue was deleted, or moved.
    #[error("RabbitMQ cancelled the consumer")]
    Cancelled,
    /// Messages wait and the consumer's prefetch is not used up, but none is delivered.
    #[error("RabbitMQ has messages and delivers none")]
    Starved,
    /// A queue or an exchange exists with other properties. Only an operator can fix that, so
    /// the text says how.
    #[error(
        "RabbitMQ has {name:?} with other properties than this version of the service declares: \
         stop every ingest, let the workers of the version that made it empty it, stop them, \
         delete it (rabbitmqctl delete_queue {name}), and start this version again"
    )]
    Mismatch {
        /// The queue or exchange.
        name: String,
        /// The answer of RabbitMQ.
        source: lapin::Error,
    },
    /// The channel was not in confirm mode: a bug in this engine.
    #[error("RabbitMQ was not asked to confirm")]
    NotConfirming,
    /// Another message of the same channel was returned, after which it is unknown whether this one
    /// was routed.
    #[error("another message was returned at the same time")]
    InDoubt,
    /// It did not store a message, and may refuse every further one on this channel.
    #[error("RabbitMQ did not store a message")]
    Nacked,
    /// The session of the delivery or of the publish has ended.
    #[error("the session with RabbitMQ is over")]
    SessionOver,
}

/// Logs the end of a session: at `debug` if the connection broke, which the checks of the program say, else
/// as a warning.
macro_rules! log_lost {
    ($error:expr, $($event:tt)+) => {
        if $error.is_of_connection() {
            tracing::debug!($($event)+);
        } else {
            tracing::warn!($($event)+);
        }
    };
}
pub(super) use log_lost;

impl AmqpError {
    /// Returns true if there is no connection: each program checks that and says it.
    pub(super) fn is_of_connection(&self) -> bool {
        match self {
            Self::Broken(error) => match error.kind() {
                ErrorKind::ProtocolError(error) => {
                    *error.kind() == AMQPErrorKind::Hard(AMQPHardError::CONNECTIONFORCED)
                }
                _ => true,
            },
            Self::Io(_)
            | Self::Tls(_)
            | Self::OtherProtocol
            | Self::Blocked(_)
            | Self::Late(_)
            | Self::SessionOver => true,
            Self::Settings(_)
            | Self::NoHost
            | Self::TlsFiles(_)
            | Self::Cancelled
            | Self::Starved
            | Self::Mismatch { .. }
            | Self::NotConfirming
            | Self::InDoubt
            | Self::Nacked => false,
        }
    }

    /// The same error, or what TLS says of it if TLS is its cause.
    pub(super) fn or_tls(self) -> Self {
        TlsFailure::of(&self).map_or(self, Self::Tls)
    }
}

impl From<AmqpError> for QueueError {
    fn from(error: AmqpError) -> Self {
        match error {
            AmqpError::Broken(refusal) if is_access_refused(&refusal) => {
                Self::Unavailable(Box::new(AccessRefused(refusal.to_string())))
            }
            AmqpError::Broken(error) if matches!(error.kind(), ErrorKind::ParsingError(_)) => {
                Self::Unavailable(Box::new(AmqpError::OtherProtocol))
            }
            AmqpError::Mismatch { .. } => Self::Topology(Box::new(error)),
            AmqpError::Settings(_)
            | AmqpError::NoHost
            | AmqpError::Broken(_)
            | AmqpError::Io(_)
            | AmqpError::Tls(_)
            | AmqpError::TlsFiles(_)
            | AmqpError::OtherProtocol
            | AmqpError::Blocked(_)
            | AmqpError::Late(_)
            | AmqpError::Cancelled
            | AmqpError::Starved
            | AmqpError::NotConfirming
            | AmqpError::InDoubt
            | AmqpError::Nacked
            | AmqpError::SessionOver => Self::Unavailable(Box::new(error)),
        }
    }
}

/// Returns true if RabbitMQ names the user, its password, the virtual host or a permission as the cause.
fn is_access_refused(error: &lapin::Error) -> bool {
    let ErrorKind::ProtocolError(error) = error.kind() else { return false };
    matches!(
        error.kind(),
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED)
            | AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED)
    )
}

/// Waits for an answer of the server, for `bound` at most.
pub(super) async fn within<T>(
    bound: Duration,
    answer: impl Future<Output = Result<T, lapin::Error>>,
) -> Result<T, AmqpError> {
    match tokio::time::timeout(bound, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(AmqpError::Late(bound)),
    }
}
