//! The MQTT broker of the workers: if it can be reached and lets them in.

use std::time::Duration;

use push_model::causes::with_causes;
use push_mqtt::{
    MqttUrl,
    handshake::{self, ConnectError},
};
use push_store::Finding;
use rmqtt_codec::v5::{Connect, ConnectAckReason};

/// The time limit for an answer of the broker.
const TIMEOUT: Duration = Duration::from_secs(5);

const SUBJECT: &str = "MQTT broker";

/// Logs in as a worker does, with a session that ends with the connection.
pub(in crate::doctor) async fn broker(url: Option<&MqttUrl>) -> Finding {
    let Some(url) = url else {
        return Finding::skipped(SUBJECT, "name it with --mqtt-url");
    };
    // A name of its own, so that it takes no worker's session.
    let client = format!("push-doctor-{}", std::process::id());
    let wanted = Connect { clean_start: true, ..Connect::default() }.client_id(client);
    match handshake::connect(url, TIMEOUT, wanted).await {
        Ok(_) => Finding::ok(SUBJECT, format!("{url} lets workers in")),
        Err(error) => {
            Finding::error(SUBJECT, format!("{url}: {}", with_causes(&error)), remedy(&error))
        }
    }
}

fn remedy(error: &ConnectError) -> &'static str {
    match error {
        ConnectError::Refused(
            ConnectAckReason::BadUserNameOrPassword | ConnectAckReason::NotAuthorized,
        ) => "check user and password in --mqtt-url, and what the broker allows them",
        ConnectError::Refused(_) => "see the broker's log",
        ConnectError::Io(_) | ConnectError::Slow(_) | ConnectError::Closed => {
            "start the broker, or check host, port and firewall of --mqtt-url"
        }
        ConnectError::Tls(_) | ConnectError::TlsFiles(_) => {
            "check --mqtt-ca, --mqtt-cert and --mqtt-key, and the broker's certificate"
        }
        _ => "name a broker that speaks MQTT 5",
    }
}
