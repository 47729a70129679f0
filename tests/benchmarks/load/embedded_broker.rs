//! The broker of `pushctl standalone`, alone in a process of its own, so that a worker of another
//! process can log in to it.

use std::{process::Stdio, sync::Arc};

use anyhow::Context as _;
use async_trait::async_trait;
use push_boot::{descriptors, runtime};
use push_broker::{Broker, BrokerSettings, DeviceAuthenticator, Login, LoginRefusal, WORKER};
use push_credentials::DeviceIdentity;
use push_model::{
    app::AppKey, ids::ClientId, mqtt::MqttDevice, registration::RegistrationEpoch, secret::Secret,
    time::UnixMillis,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

/// The hidden flag of the program.
#[derive(Debug, clap::Args)]
pub(crate) struct EmbeddedBrokerArgs {
    /// Be the broker of `pushctl standalone`, for as many devices
    #[arg(long, hide = true)]
    embedded_broker: Option<usize>,
}

/// The running program. It ends when dropped.
#[derive(Debug)]
pub(crate) struct EmbeddedBroker {
    /// Where devices connect. The password of each is its registration.
    pub(crate) devices: String,
    /// Where the worker connects, with its login.
    pub(crate) worker: String,
    _process: Child,
}

impl EmbeddedBroker {
    pub(crate) async fn start(devices: usize) -> anyhow::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--embedded-broker", &devices.to_string()])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = process.stdout.take().context("no output")?;
        let mut lines = BufReader::new(output).lines();
        let mut line = async || lines.next_line().await?.context("the embedded broker ended");
        let (devices, worker) = (line().await?, line().await?);
        Ok(Self { devices, worker, _process: process })
    }
}

impl EmbeddedBrokerArgs {
    /// Runs the program if the flag asks for it.
    pub(crate) fn run(&self) -> Option<anyhow::Result<std::process::ExitCode>> {
        let devices = self.embedded_broker?;
        Some(runtime::start(runtime::default_threads()).map_err(Into::into).and_then(|runtime| {
            runtime.block_on(async {
                descriptors::raise();
                let settings = BrokerSettings {
                    // Twice as many, because one app may have as many as it leaves free.
                    connections: 2 * devices,
                    sessions: 2 * devices,
                    address_connections: devices,
                    ..BrokerSettings::default()
                };
                let password = Secret::generate();
                let metrics = &mut Default::default();
                let broker = Broker::start(settings, Arc::new(AnyDevice), &password, metrics)?;
                println!("mqtt://{}", broker.address());
                let address = broker.worker_url().to_string();
                let address = address.trim_start_matches("mqtt://");
                println!("mqtt://{WORKER}:{}@{address}", password.expose());
                std::future::pending().await
            })
        }))
    }
}

/// Devices are who they say: signatures are no part of what is measured.
struct AnyDevice;

#[async_trait]
impl DeviceAuthenticator for AnyDevice {
    async fn authenticate(
        &self,
        login: Login<'_>,
        _: UnixMillis,
    ) -> Result<DeviceIdentity, LoginRefusal> {
        let device: MqttDevice =
            login.client_id.parse().map_err(|_| LoginRefusal::BadCredentials)?;
        let MqttDevice { app, client } = device;
        let (expires_at, kid) = (UnixMillis::MAX, "key".into());
        let registration = std::str::from_utf8(login.password).ok();
        let registration: Option<RegistrationEpoch> =
            registration.and_then(|text| text.parse().ok());
        let registration = registration.ok_or(LoginRefusal::BadCredentials)?;
        Ok(DeviceIdentity { app, client, generation: 0, registration, expires_at, kid })
    }

    async fn find_removed(
        &self,
        _: &AppKey,
        _: &[(ClientId, RegistrationEpoch)],
        _: &mut (dyn FnMut(usize) + Send),
    ) {
    }

    async fn has_app(&self, _: &AppKey) -> bool {
        true
    }

    fn accepts_key(&self, _: &str, _: UnixMillis) -> bool {
        true
    }
}
