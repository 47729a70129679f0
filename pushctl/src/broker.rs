//! `pushctl broker`: the broker as a program of its own, for the scaled form. Devices log in with
//! their tokens, workers with a password, on listeners of their own.

use std::{net::SocketAddr, path::Path, path::PathBuf, sync::Arc};

use anyhow::Context as _;
use prometheus_client::registry::Registry;
use push_boot::{
    credentials::CredentialSettings,
    descriptors,
    engines::{EngineSettings, open_index_at_start},
    operations::{
        self, Operations,
        health::{Health, HealthArgs, HealthSettings, Need, state_of, watch_disk},
    },
    proxy_protocol::ProxyArgs,
    secret::{SecretSetting, SecretText},
    settings::{ConfigErrors, address, count, on_or_off, some_time},
    shutdown,
    telemetry::{self, LogArgs, LogSettings},
    traces::Traces,
};
use push_broker::{
    Broker, BrokerArgs, BrokerSettings, DeviceLogins, LoginLogSettings, WorkerDoorSettings,
    refuse_in_clear,
};
use push_credentials::DeviceCredentials;
use push_index::Index;
use push_model::secret::Secret;
use tracing::info;

use crate::{
    cli::{bind, make_data_dir},
    output::Output,
};

/// Flags of `broker`.
#[derive(Debug, clap::Args)]
pub struct BrokerCommandArgs {
    #[command(flatten)]
    broker: BrokerArgs,
    #[command(flatten)]
    proxies: ProxyArgs,
    /// Where the workers connect, as user `worker`: keep it from devices and strangers
    #[arg(
        long,
        env = "PUSH_MQTT_WORKER_LISTEN",
        value_name = "ADDR",
        default_value = "127.0.0.1:1884"
    )]
    mqtt_worker_listen: String,
    /// The password of the workers
    #[arg(long, env = "PUSH_MQTT_WORKER_PASSWORD", value_name = "PASSWORD")]
    mqtt_worker_password: Option<SecretText>,
    /// The file that holds the password of the workers, in place of --mqtt-worker-password
    #[arg(long, env = "PUSH_MQTT_WORKER_PASSWORD_FILE", value_name = "FILE")]
    mqtt_worker_password_file: Option<PathBuf>,
    /// Connections of all workers together; a quarter of what the limit of open files leaves, at most
    #[arg(
        long,
        env = "PUSH_MQTT_MAX_WORKER_CONNECTIONS",
        value_name = "N",
        default_value = "1000"
    )]
    mqtt_max_worker_connections: String,
    /// How often failed logins are written to the log
    #[arg(long, env = "PUSH_ACTIVITY_INTERVAL", value_name = "TIME", default_value = "1min")]
    activity_interval: String,
    /// Where /livez, /readyz and /metrics are served
    #[arg(long, env = "PUSH_OPS_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:9082")]
    ops_listen: String,
    #[command(flatten)]
    health: HealthArgs,
    #[command(flatten)]
    log: LogArgs,
}

/// Checked flags.
#[derive(Debug)]
struct Settings {
    broker: BrokerSettings,
    worker_password: Secret,
    ops_listen: SocketAddr,
    health: HealthSettings,
    log: LogSettings,
    engines: EngineSettings,
    credentials: CredentialSettings,
}

impl BrokerCommandArgs {
    fn check(
        &self,
        engines: Option<EngineSettings>,
        credentials: Option<CredentialSettings>,
        mut errors: ConfigErrors,
    ) -> Result<Settings, ConfigErrors> {
        let broker = self.broker.check(&mut errors);
        let trusted_proxies = self.proxies.check(&mut errors);
        let workers = self.check_workers(broker.as_ref(), &mut errors);
        let worker_password = self.check_password(&mut errors);
        let login_log = self.check_login_log(&mut errors);
        let ops_listen = errors.read("--ops-listen", &self.ops_listen, address);
        let health = self.health.check(&mut errors);
        let log = self.log.check(telemetry::DEFAULT_FILTER, &mut errors);
        let settings = (|| {
            Some(Settings {
                broker: BrokerSettings {
                    workers: workers?,
                    login_log: login_log?,
                    trusted_proxies: trusted_proxies?,
                    ..broker?
                },
                worker_password: worker_password?,
                ops_listen: ops_listen?,
                health: health?,
                log,
                engines: engines?,
                credentials: credentials?,
            })
        })();
        errors.finish(settings)
    }

    fn check_workers(
        &self,
        broker: Option<&BrokerSettings>,
        errors: &mut ConfigErrors,
    ) -> Option<WorkerDoorSettings> {
        let listen = errors.read("--mqtt-worker-listen", &self.mqtt_worker_listen, address);
        let in_clear = on_or_off(self.broker.in_clear()).unwrap_or(true);
        if let (Some(listen), false) = (listen, in_clear)
            && broker.is_some_and(|broker| broker.tls.is_none())
        {
            refuse_in_clear("--mqtt-worker-listen", listen, "pushes and a password", errors);
        }
        let flag = "--mqtt-max-worker-connections";
        let connections = errors.read(flag, &self.mqtt_max_worker_connections, count(1, 1_000_000));
        Some(WorkerDoorSettings { listen: listen?, encrypted: true, connections: connections? })
    }

    fn check_login_log(&self, errors: &mut ConfigErrors) -> Option<LoginLogSettings> {
        let interval = errors.read("--activity-interval", &self.activity_interval, some_time)?;
        Some(LoginLogSettings { interval, ..LoginLogSettings::default() })
    }

    fn check_password(&self, errors: &mut ConfigErrors) -> Option<Secret> {
        const FLAG: &str = "--mqtt-worker-password";
        let setting = SecretSetting {
            text: self.mqtt_worker_password.as_ref(),
            file: self.mqtt_worker_password_file.as_deref(),
        };
        let password = errors.read_secret(FLAG, setting, |text| {
            Secret::chosen(text).map_err(|bad| bad.to_string())
        })?;
        if password.is_none() {
            errors.missing(FLAG);
        }
        password
    }
}

/// Runs until a signal stops it; then ends all connections and saves the sessions.
///
/// # Errors
/// If a setting is wrong, there is no key file, an address is taken, the index cannot be used, or the
/// sessions cannot be read or saved.
pub async fn run(
    args: BrokerCommandArgs,
    engines: Option<EngineSettings>,
    credentials: Option<CredentialSettings>,
    errors: ConfigErrors,
    data_dir: &Path,
    out: Output,
) -> anyhow::Result<()> {
    let mut settings = args.check(engines, credentials, errors)?;
    telemetry::init(settings.log, &Traces::off());
    settings.broker.fit_both(descriptors::raise());
    make_data_dir(data_dir)?;
    settings.broker.save_in(data_dir);
    let credentials: DeviceCredentials = settings.credentials.open_in(data_dir)?;
    let ops = bind(settings.ops_listen, "--ops-listen").await?;
    let ops_address = ops.local_addr()?;
    let shutdown = shutdown::on_signal();
    let health = Health::starting(settings.health, shutdown.clone());
    let operations = Operations::start(ops, health.clone());
    let index = open_index_at_start(&settings.engines, &health).await?.index;

    let mut registry = Registry::default();
    operations::process::register(&mut registry, "broker");
    let logins = Arc::new(DeviceLogins::new(credentials.keys().clone(), index.clone()));
    let broker = Broker::start(settings.broker, logins, &settings.worker_password, &mut registry)?;
    operations.publish(registry);
    watch(&health, index, data_dir);
    health.complete();
    let (devices, workers) = (broker.address(), broker.worker_url());
    info!(%devices, %workers, ops = %ops_address, data_dir = %data_dir.display(), "broker started");
    out.note(format_args!("devices on {devices}, workers on {workers}; stop with Ctrl-C"));

    shutdown.cancelled().await;
    let saved = broker.stop().await;
    operations.stop().await;
    info!("broker stopped");
    saved.context("what waits for devices is not saved")
}

/// The parts of a broker. Devices can log in while the index answers, which has their apps; it only
/// reads there. What waits for devices is kept while the data directory takes writes.
fn watch(health: &Health, index: Arc<dyn Index>, data_dir: &Path) {
    health.watch("index", Need::Required, move || {
        let index = Arc::clone(&index);
        async move { state_of(index.ping().await) }
    });
    watch_disk(health, data_dir);
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: BrokerCommandArgs,
    }

    fn errors(flags: &[&str]) -> String {
        let cli = Cli::parse_from(std::iter::once(&"test").chain(flags));
        cli.args.check(None, None, ConfigErrors::default()).unwrap_err().to_string()
    }

    const PASSWORD: &str = "--mqtt-worker-password=mP4qLw82ZxRt70VbNc5eKyHd31JsUaGf";

    #[test]
    fn the_workers_have_a_password_that_cannot_be_guessed() {
        assert!(
            errors(&[]).contains("--mqtt-worker-password (PUSH_MQTT_WORKER_PASSWORD): must be set")
        );
        let weak = format!("--mqtt-worker-password={}", "w".repeat(40));
        let refused = errors(&[&weak]);
        assert!(
            refused.contains("--mqtt-worker-password") && !refused.contains("www"),
            "{refused}"
        );
        assert!(!errors(&[PASSWORD]).contains("password"));
    }

    #[test]
    fn workers_connect_in_clear_where_others_reach_it_only_if_that_is_said() {
        let listen = "--mqtt-worker-listen=0.0.0.0:1884";
        assert!(errors(&[PASSWORD, listen]).contains("--mqtt-worker-listen 0.0.0.0:1884: other"));
        assert!(!errors(&[PASSWORD, listen, "--mqtt-in-clear=on"]).contains("worker-listen"));
    }
}
