//! The harm that one tenant can do to another: the time of a push to one device while a hostile app
//! sends bodies slowly, holds connections, registers devices and broadcasts, each alone and all
//! together.

use std::time::Duration;

use push_mqtt::MqttUrl;
use tokio::time::sleep;

use super::{arrivals::Listener, isolation::BackgroundBroadcasts};
use crate::{
    load::{Producer, attacks::Attack},
    measure::stats::{Rounds, quantile},
    report::{Row, Target},
    setup::{Environment, LoadedApp, Workers},
};

/// The hostile app. Broadcasts are those of the loaded app, which has many devices.
const HOSTILE: &str = "hostile";
/// The pause before the service counts as idle: what an attack leaves to be done, such as the end of a
/// broadcast, would make the time without one longer, and the ratio smaller than it is.
const SETTLE: Duration = Duration::from_secs(3);
/// Requests a second that the operator allows the hostile app.
const RATE_LIMIT: &str = "1000";

/// The attack of the hostile tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Worst {
    SlowBodies,
    IdleConnections,
    Registrations,
    Broadcasts,
    Everything,
}

impl Worst {
    const ALL: [Self; 5] = [
        Self::SlowBodies,
        Self::IdleConnections,
        Self::Registrations,
        Self::Broadcasts,
        Self::Everything,
    ];

    const fn text(self) -> &'static str {
        match self {
            Self::SlowBodies => "slow bodies",
            Self::IdleConnections => "idle connections",
            Self::Registrations => "registrations",
            Self::Broadcasts => "broadcasts",
            Self::Everything => "all of these",
        }
    }

    fn attacks(self, hostile: &Producer) -> anyhow::Result<Vec<Attack>> {
        let mut attacks = Vec::new();
        if matches!(self, Self::SlowBodies | Self::Everything) {
            attacks.push(Attack::slow_bodies(hostile)?);
        }
        if matches!(self, Self::IdleConnections | Self::Everything) {
            attacks.push(Attack::idle_connections(hostile)?);
        }
        if matches!(self, Self::Registrations | Self::Everything) {
            attacks.push(Attack::registrations(hostile)?);
        }
        Ok(attacks)
    }

    async fn broadcasts(self, loaded: &LoadedApp) -> anyhow::Result<Option<BackgroundBroadcasts>> {
        match self {
            Self::Broadcasts | Self::Everything => {
                Ok(Some(BackgroundBroadcasts::start(loaded).await?))
            }
            Self::SlowBodies | Self::IdleConnections | Self::Registrations => Ok(None),
        }
    }
}

pub(crate) async fn run(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let loaded = env.big_app().await?;
    let hostile = loaded.add_app(HOSTILE, 0).await?;
    loaded.stack.pushctl(&["app", "set", HOSTILE, "--rate-limit", RATE_LIMIT]).await;
    let broker: MqttUrl = env.mqtt_url().await?.parse()?;
    let workers = Workers::start(&loaded.stack, 1).await;
    let mut listener = Listener::open(loaded, &broker, "tenant").await?;
    let mut rows = Vec::new();
    for worst in Worst::ALL {
        let mut rounds = Rounds::default();
        for _ in 0..env.sizes.rounds {
            sleep(SETTLE).await;
            let mut idle = listener.arrivals(env.sizes.isolated).await?;
            let broadcasts = worst.broadcasts(loaded).await?;
            let attacks = worst.attacks(&hostile)?;
            let busy = listener.arrivals(env.sizes.isolated).await;
            for attack in attacks {
                attack.stop().await?;
            }
            if let Some(broadcasts) = broadcasts {
                broadcasts.stop().await?;
            }
            rounds.add(quantile(&mut busy?, 0.99), quantile(&mut idle, 0.99));
        }
        rows.push(row(worst, &rounds, env, loaded.size));
    }
    workers.stop().await?;
    Ok(rows)
}

fn row(worst: Worst, rounds: &Rounds, env: &Environment, devices: usize) -> Row {
    Row {
        what: format!("another tenant's push, p99, during {}", worst.text()),
        target: Target::RatioAtMost(3.0),
        how: format!(
            "{} x {} pushes, from the POST to the arrival at an MQTT device. The hostile app may \
             send {RATE_LIMIT} requests a second; broadcasts go to {devices} devices; attacks come \
             from another address and reconnect. Ceiling, in turn: the same, idle",
            env.sizes.rounds, env.sizes.isolated
        ),
        ..rounds.row("ms", "ms")
    }
}
