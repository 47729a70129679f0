//! The transport against a broker that misbehaves on purpose: over TCP, and where time matters,
//! over an in-memory connection with a paused clock. The tests package has suites with real
//! brokers.

mod broken;
mod fuzz;
mod outcomes;
mod permission;
mod scripted;
mod session;
mod sharing;
mod unavailable;

use std::time::Duration;

use push_model::{
    app::AppKey,
    device::{Target, TransportKind},
    ids::MessageId,
    ledger::RetryReason,
    time::UnixMillis,
};
use rmqtt_codec::v5::PublishAckReason;

use self::scripted::{Action, ScriptedBroker};
use super::{MqttSettings, MqttTransport};
use crate::{Lifetime, Outcome, Outgoing, Sending};

const NOW: UnixMillis = UnixMillis(1_000_000);

/// Longer than any wait in these tests, however slow the machine is.
const DEADLINE: Duration = Duration::from_secs(60);

const SUCCESS: Action = Action::Answer(PublishAckReason::Success);

const UNAVAILABLE: Outcome = Outcome::Later(RetryReason::TransportAway, None);

fn quick() -> MqttSettings {
    MqttSettings {
        connections: 1,
        ack_timeout: Duration::from_millis(500),
        offline_timeout: Duration::from_secs(5),
        reconnect_first: Duration::from_millis(10),
        ..MqttSettings::default()
    }
}

/// A message that may be sent for this long after [`NOW`].
fn message(app: &str, lifetime: Duration) -> Outgoing {
    Outgoing {
        app: AppKey::first(app.parse().unwrap()),
        message_id: MessageId::issue_named(&"app".parse().unwrap()),
        payload: b"{}".to_vec().into(),
        localized: None,
        language: None,
        lifetime: Lifetime::Until(NOW.plus(lifetime)),
    }
}

/// A delivery that is never told to stop.
fn free(now: UnixMillis) -> Sending {
    Sending::unrestricted(now)
}

/// A message with time to live 0.
fn now_or_never(app: &str) -> Outgoing {
    let lifetime = Lifetime::NowOrNever { until: NOW.plus(DEADLINE) };
    Outgoing { lifetime, ..message(app, DEADLINE) }
}

fn targets(names: impl IntoIterator<Item = impl ToString>) -> Vec<Target> {
    let target = |name: String| Target {
        client_id: name.parse().unwrap(),
        transport: TransportKind::Mqtt,
        token: None,
        epoch: push_model::registration::RegistrationEpoch::default(),
        user_id: None,
        language: None,
    };
    names.into_iter().map(|name| target(name.to_string())).collect()
}

async fn connected(broker: &ScriptedBroker, settings: MqttSettings) -> MqttTransport {
    let all = (1u64 << (settings.connections + 1)) - 1;
    let transport = MqttTransport::start(broker.url.clone(), settings);
    let mut up = transport.pool.up();
    tokio::time::timeout(DEADLINE, up.wait_for(|&up| up == all)).await.unwrap().unwrap();
    transport
}

/// Returns the number of devices with this outcome.
fn count(outcomes: &[Outcome], wanted: Outcome) -> usize {
    outcomes.iter().filter(|&&outcome| outcome == wanted).count()
}
