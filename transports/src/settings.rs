//! The settings of all transports, and the transports that they ask for.

use std::{sync::Arc, time::Duration};

use push_boot::{
    settings::ConfigErrors,
    tune::{HOUR, Tuning},
};
use push_model::device::TransportKind;
use push_mqtt::MqttUrl;
use tracing::info;

use crate::{
    Discard, Transports,
    mqtt::{MqttArgs, MqttSettings, MqttTransport},
};

/// Flags about the transports of a worker.
#[derive(Debug, Clone, clap::Args)]
pub struct TransportArgs {
    #[command(flatten)]
    mqtt: MqttArgs,
}

/// Checked settings of the transports.
#[derive(Debug, Clone)]
pub struct TransportSettings {
    /// The MQTT broker of devices, if one is set.
    pub mqtt: Option<(MqttUrl, MqttSettings)>,
    /// The time that the transport `discard` takes for a batch, for load tests.
    pub discard_latency: Duration,
}

impl TransportArgs {
    /// Checks the flags; what is wrong goes into `errors`.
    pub fn check(&self, errors: &mut ConfigErrors) -> Option<TransportSettings> {
        let mqtt = self.mqtt.check(errors);
        let discard_latency = discard_latency(errors.tuning());
        Some(TransportSettings { mqtt: mqtt?, discard_latency })
    }
}

/// Returns how long the transport `discard` takes for a batch.
pub fn discard_latency(tuning: &mut Tuning) -> Duration {
    let mut latency = Duration::ZERO;
    tuning.time("discard-latency", &mut latency, Duration::ZERO..=HOUR);
    latency
}

impl Transports {
    /// Starts the transports that the settings ask for. They connect in the background.
    ///
    /// Must be called within a Tokio runtime.
    pub fn from_settings(settings: TransportSettings) -> Self {
        let discard = Discard { latency: settings.discard_latency };
        let transports = Self::default().with(TransportKind::Discard, Arc::new(discard));
        let Some((url, settings)) = settings.mqtt else { return transports };
        info!(broker = %url, "devices are reached over MQTT");
        transports.with(TransportKind::Mqtt, Arc::new(MqttTransport::start(url, settings)))
    }
}
