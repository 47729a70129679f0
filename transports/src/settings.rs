//! The settings of all transports, and the transports that they ask for.

use std::{sync::Arc, time::Duration};

use push_boot::{
    settings::{ConfigErrors, over_mqtt::OverMqttArgs},
    tune::{HOUR, Tuning},
};
use push_model::device::TransportKind;
use push_mqtt::MqttUrl;
use push_outbound::Outbound;
use push_providers::{Provider, with_provider};
use push_tls::FileError;
use tracing::debug;

use crate::{
    Discard, Transport, Transports,
    http::{HttpArgs, HttpSettings, HttpTransport, SharedQuota, StoredProviders},
    mqtt::{MqttBrokerArgs, MqttSettings, MqttTransport},
};

/// Flags about the transports of a worker.
#[derive(Debug, Clone, clap::Args)]
pub struct TransportArgs {
    #[command(flatten)]
    over_mqtt: OverMqttArgs,
    #[command(flatten)]
    mqtt: MqttBrokerArgs,
    #[command(flatten)]
    http: HttpArgs,
}

/// Checked settings of the transports.
#[derive(Debug, Clone)]
pub struct TransportSettings {
    /// The MQTT broker of devices, if one is set.
    pub mqtt: Option<(MqttUrl, MqttSettings)>,
    /// FCM, APNs, Web Push and webhooks.
    pub http: HttpSettings,
    /// The time that the transport `discard` takes for a batch, for load tests.
    pub discard_latency: Duration,
}

impl TransportArgs {
    /// Checks the flags; what is wrong goes into `errors`.
    pub fn check(&self, errors: &mut ConfigErrors) -> Option<TransportSettings> {
        let settings = MqttSettings::read(errors.tuning());
        let (mqtt, http) = (self.mqtt.check(None, errors), self.http.check(errors));
        let discard_latency = discard_latency(errors.tuning());
        match (self.over_mqtt.check(errors), &mqtt) {
            (Some(true), Some(None)) => errors.note(
                "--mqtt-url (PUSH_MQTT_URL): must be set. If no device is reached over MQTT, \
                 say so with --transport-mqtt off (PUSH_TRANSPORT_MQTT) instead",
            ),
            (Some(false), Some(Some(_))) => errors.note(
                "--transport-mqtt off (PUSH_TRANSPORT_MQTT): contradicts --mqtt-url \
                 (PUSH_MQTT_URL): leave one of them out",
            ),
            _ => {}
        }
        Some(TransportSettings {
            mqtt: mqtt?.map(|url| (url, settings)),
            http: http?,
            discard_latency,
        })
    }
}

/// Returns how long the transport `discard` takes for a batch.
pub fn discard_latency(tuning: &mut Tuning) -> Duration {
    let mut latency = Duration::ZERO;
    tuning.time("discard-latency", &mut latency, Duration::ZERO..=HOUR);
    latency
}

impl Transports {
    /// Starts the transports that the settings ask for. They connect in the background, or when there is
    /// something to send.
    ///
    /// Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// If the file of authorities for requests to providers cannot be used.
    pub fn from_settings(
        settings: TransportSettings,
        providers: Arc<StoredProviders>,
    ) -> Result<Self, FileError> {
        let TransportSettings { mqtt, http, discard_latency } = settings;
        let discard = Discard { latency: discard_latency };
        let mut transports = Self::default().with(TransportKind::Discard, Arc::new(discard));
        let outbound = http.open()?;
        let fcm_quota =
            http.fcm_a_second.map(|a_second| SharedQuota { quotas: providers.clone(), a_second });
        for kind in TransportKind::ALL {
            let quota = fcm_quota.clone().filter(|_| kind == TransportKind::Fcm);
            let over = with_provider!(kind,
                P => Some(over::<P>(&outbound, &providers, quota, &http)),
                else None,
            );
            if let Some(over) = over {
                transports = transports.with(kind, over);
            }
        }
        let Some((url, settings)) = mqtt else { return Ok(transports) };
        debug!(broker = %url, "devices are reached over MQTT");
        Ok(transports.with(TransportKind::Mqtt, Arc::new(MqttTransport::start(url, settings))))
    }
}

/// Returns the transport of a provider.
fn over<P: Provider>(
    outbound: &Arc<Outbound>,
    providers: &Arc<StoredProviders>,
    quota: Option<SharedQuota>,
    settings: &HttpSettings,
) -> Arc<dyn Transport> {
    let (outbound, providers) = (outbound.clone(), providers.clone());
    Arc::new(HttpTransport::<P>::new(outbound, providers, quota, settings.clone()))
}
