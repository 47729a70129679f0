//! The reasons for which a client's connection ends.

use std::io;

use rmqtt_codec::{error::EncodeError, v5::DisconnectReasonCode};

/// The reasons for which a connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    #[error("the client disconnected")]
    ByClient,
    #[error("ended by the broker: {0:?}")]
    Reason(DisconnectReasonCode),
    #[error("the client reads nothing")]
    Stalled,
    #[error("the connection broke")]
    Io(#[from] io::Error),
    #[error("a packet cannot be written")]
    Encode(#[from] EncodeError),
}
