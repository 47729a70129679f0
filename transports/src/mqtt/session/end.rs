//! The reasons for which a session ends.

use std::{io, time::Duration};

use rmqtt_codec::{error::DecodeError, v5::DisconnectReasonCode};

/// The reasons for which a session ends.
#[derive(Debug, thiserror::Error)]
pub(in crate::mqtt) enum SessionEnd {
    #[error("stopped")]
    Stopped,
    #[error("the broker closed the connection")]
    Closed,
    #[error("the broker ended the session: {0:?}")]
    Ended(DisconnectReasonCode),
    #[error("no answer from the broker for {0:?}")]
    Silent(Duration),
    #[error("messages were never acknowledged, and nothing else is in flight")]
    Lost,
    #[error("the connection broke")]
    Io(#[from] io::Error),
    #[error("the broker sent what is not MQTT 5")]
    Decode(#[from] DecodeError),
}
