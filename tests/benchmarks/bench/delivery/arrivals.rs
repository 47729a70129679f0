//! The time of a push to one device from the POST to its arrival at the device over MQTT.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use push_mqtt::MqttUrl;
use tokio::time::{Instant, timeout};

use crate::{
    load::{mqtt_device::MqttDevice, producer::Connection, pushes::ordinary_push},
    setup::LoadedApp,
};

/// The deadline of an arrival.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);
/// The listening device.
const CLIENT_ID: &str = "listener";
/// Pushes before the first measurement.
const WARM_UP: usize = 20;

/// A listening device, the only one of its app, and a connection that pushes to it.
pub(crate) struct Listener {
    pushes: Connection,
    device: MqttDevice,
}

impl Listener {
    /// Makes the app, connects the device and warms up. A worker for this broker must run.
    pub(crate) async fn open(
        loaded: &LoadedApp,
        broker: &MqttUrl,
        app: &str,
    ) -> anyhow::Result<Self> {
        // An app of its own: the device must receive no broadcast to the loaded app, whose devices
        // are counted too.
        let producer = loaded.add_app(app, 0).await?;
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), format!(r#"{{"client_id":"{CLIENT_ID}"}}"#))?;
        let path = file.path().to_str().context("a path that is no text")?;
        loaded.stack.pushctl(&["device", "import", app, path]).await;
        let device = MqttDevice::listen(broker, &format!("push/{app}/{CLIENT_ID}")).await?;
        let mut listener = Self { pushes: producer.connect().await?, device };
        listener.arrivals(WARM_UP).await?;
        Ok(listener)
    }

    /// Pushes to the device one after the other, and returns how long each push took to arrive.
    pub(crate) async fn arrivals(&mut self, count: usize) -> anyhow::Result<Vec<Duration>> {
        let body = ordinary_push(CLIENT_ID);
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let started = Instant::now();
            let id = self.pushes.push(&body).await?;
            let arrival = timeout(ARRIVAL_TIMEOUT, self.device.next()).await;
            let payload = arrival.context("a push does not arrive")??;
            times.push(started.elapsed());
            let payload = String::from_utf8_lossy(&payload);
            ensure!(payload.contains(&id), "{payload} arrives in place of {id}");
        }
        Ok(times)
    }
}
