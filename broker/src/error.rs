//! The reasons for which a broker does not start.

use std::{io, net::SocketAddr};

use push_mqtt::BadMqttUrl;
use push_tls::FileError;

use crate::store::StoreError;

/// The reasons for which a broker does not start.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The address for devices is taken or does not belong to this machine.
    #[error("cannot listen for devices on {address}: choose another address with --mqtt-listen")]
    Listen {
        /// The address from the settings.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The address for devices over WebSocket is taken or does not belong to this machine.
    #[error(
        "cannot listen for devices over WebSocket on {address}: choose another address with \
         --mqtt-ws-listen"
    )]
    ListenForWebSockets {
        /// The address from the settings.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The address for workers is taken or does not belong to this machine.
    #[error("cannot listen for workers on {address}")]
    ListenForWorkers {
        /// The address from the settings.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The certificate cannot be used.
    #[error("the certificate of the MQTT broker cannot be used")]
    Certificate(#[from] FileError),
    /// No URL can be made of the address for workers.
    #[error("the address for workers makes no MQTT URL")]
    WorkerUrl(#[from] BadMqttUrl),
    /// The saved sessions cannot be used.
    #[error("the saved sessions of the MQTT broker cannot be used")]
    Store(#[from] StoreError),
}
