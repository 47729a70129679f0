//! How long a push to one device takes, from the POST to its arrival at the device over MQTT.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use push_mqtt::MqttUrl;
use tokio::time::{Instant, timeout};

use crate::{
    device::Device,
    load::{Connection, ordinary_push},
    world::Crowd,
};

/// A push to one device takes less.
const ARRIVAL: Duration = Duration::from_secs(60);
/// The one device that listens.
const CLIENT_ID: &str = "listener";
/// Pushes before anything is measured.
const WARM_UP: usize = 20;

/// A device that listens, the only one of its app, and a connection that pushes to it.
pub(crate) struct Listener {
    pushes: Connection,
    device: Device,
}

impl Listener {
    /// Makes the app. It needs a worker that knows the broker.
    pub(crate) async fn open(crowd: &Crowd, broker: &MqttUrl, app: &str) -> anyhow::Result<Self> {
        // An app of its own, because the crowd's is broadcast to and has its size counted.
        let producer = crowd.add_app(app, 0).await?;
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), format!(r#"{{"client_id":"{CLIENT_ID}"}}"#))?;
        let path = file.path().to_str().context("a path that is no text")?;
        crowd.stack.pushctl(&["device", "import", app, path]).await;
        let device = Device::listen(broker, &format!("push/{app}/{CLIENT_ID}")).await?;
        let mut listener = Self { pushes: producer.connect().await?, device };
        listener.arrivals(WARM_UP).await?;
        Ok(listener)
    }

    /// Pushes to the device, one after the other, and gives how long each took to arrive.
    pub(crate) async fn arrivals(&mut self, count: usize) -> anyhow::Result<Vec<Duration>> {
        let body = ordinary_push(CLIENT_ID);
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let started = Instant::now();
            let id = self.pushes.push(&body).await?;
            let arrival = timeout(ARRIVAL, self.device.next()).await;
            let payload = arrival.context("a push does not arrive")??;
            times.push(started.elapsed());
            let payload = String::from_utf8_lossy(&payload);
            ensure!(payload.contains(&id), "{payload} arrives in place of {id}");
        }
        Ok(times)
    }
}
