//! `pushctl broker`: the broker as a program of its own, for the scaled form. Devices log in with
//! their tokens, workers with a password, on listeners of their own.

use std::{net::SocketAddr, path::Path, sync::Arc};

use anyhow::Context as _;
use push_boot::{
    credentials::CredentialSettings,
    data_dir,
    engines::EngineSettings,
    health::{Health, HealthSettings, Need, PartName, state_of, watch_disk},
    log::{self, LogArgs},
    presence::{Announcement, PresenceSettings},
    program::{Program, ProgramSettings, Stage},
    proxy_protocol::ProxyArgs,
    settings,
    settings::{ConfigErrors, address},
    tune::{FOUR_WEEKS, MOMENT, Tuning},
};
use push_broker::{
    Broker, BrokerArgs, BrokerSettings, DeviceLogins, LoginLogSettings, WorkerDoorSettings,
    refuse_in_clear,
};
use push_credentials::DeviceCredentials;
use push_index::Index;
use push_model::secret::Secret;
use tracing::info;

use crate::output::Output;

/// Flags of `broker`.
#[derive(Debug, clap::Args)]
pub struct BrokerCommandArgs {
    #[command(flatten)]
    broker: BrokerArgs,
    #[command(flatten)]
    proxies: ProxyArgs,
    #[command(flatten)]
    workers: WorkerDoorArgs,
    #[command(flatten)]
    operations: OperationsArgs,
    #[command(flatten)]
    log: LogArgs,
}

settings! {
    /// Flags about the listener of the workers.
    struct WorkerDoorArgs, "Embedded MQTT broker" => WorkerDoorValues {
        /// Let workers connect on this address, as user `worker`. Only workers should be able to reach it
        mqtt_worker_listen: SocketAddr = ["ADDRESS", "127.0.0.1:1884"] address;
        /// Let workers log in with this password
        mqtt_worker_password or mqtt_worker_password_file: Option<Secret> = ["PASSWORD"] chosen;
    }
}

settings! {
    /// The flag about the operations listener.
    struct OperationsArgs, "Listeners and stop" => OperationsValues {
        /// Serve /livez, /readyz and /metrics on this address
        ops_listen: SocketAddr = ["ADDRESS", "127.0.0.1:9082"] address;
    }
}

fn chosen(text: &str) -> Result<Secret, String> {
    Secret::chosen(text).map_err(|bad| bad.to_string())
}

/// Checked flags.
#[derive(Debug)]
struct Settings {
    broker: BrokerSettings,
    worker_password: Secret,
    ops_listen: SocketAddr,
    program: ProgramSettings,
    engines: EngineSettings,
    credentials: CredentialSettings,
}

/// Returns the constants of this command, or what replaces them: the interval of the log of failed
/// logins, and the most connections of all workers together. Workers get a quarter of the limit of
/// open files at most.
pub(crate) fn constants(tuning: &mut Tuning) -> (LoginLogSettings, usize) {
    let (mut login_log, mut connections) = (LoginLogSettings::default(), 1000);
    tuning.time("activity-interval", &mut login_log.interval, MOMENT..=FOUR_WEEKS);
    tuning.count("mqtt-max-worker-connections", &mut connections, 1..=1_000_000);
    (login_log, connections)
}

impl BrokerCommandArgs {
    fn check(
        &self,
        engines: Option<EngineSettings>,
        credentials: Option<CredentialSettings>,
        mut errors: ConfigErrors,
    ) -> Result<Settings, ConfigErrors> {
        let (login_log, worker_connections) = constants(errors.tuning());
        let broker = self.broker.check(&mut errors);
        let trusted_proxies = self.proxies.check(&mut errors);
        let workers = self.check_workers(broker.as_ref(), worker_connections, &mut errors);
        let operations = self.operations.values(&mut errors);
        let health = HealthSettings::read(&mut errors);
        let presence = PresenceSettings::read(&mut errors);
        let log = self.log.check(log::DEFAULT_FILTER, &mut errors);
        let settings = (|| {
            let (workers, worker_password) = workers?;
            Some(Settings {
                broker: BrokerSettings {
                    workers,
                    login_log,
                    trusted_proxies: trusted_proxies?,
                    ..broker?
                },
                worker_password,
                ops_listen: operations?.ops_listen,
                program: ProgramSettings { log: log?, traces: None, health, presence },
                engines: engines?,
                credentials: credentials?,
            })
        })();
        errors.finish(settings)
    }

    /// Returns the settings of the workers' listener, and their password.
    fn check_workers(
        &self,
        broker: Option<&BrokerSettings>,
        connections: usize,
        errors: &mut ConfigErrors,
    ) -> Option<(WorkerDoorSettings, Secret)> {
        let given = self.workers.values(errors)?;
        let listen = given.mqtt_worker_listen;
        if !self.broker.is_in_clear() && broker.is_some_and(|broker| broker.tls.is_none()) {
            refuse_in_clear("--mqtt-worker-listen", listen, "pushes and a password", errors);
        }
        let password = Some(given.mqtt_worker_password);
        let password = errors.required("--mqtt-worker-password", password)?;
        Some((WorkerDoorSettings { listen, encrypted: true, connections }, password))
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
    let program = Program::begin("broker", settings.program);
    settings.broker.fit_both(program.descriptors());
    data_dir::make(data_dir)?;
    settings.broker.save_in(data_dir);
    let credentials: DeviceCredentials = settings.credentials.open_in(data_dir)?;
    let mut start = program.start(settings.ops_listen).await?;
    let index = start.open_stores(&settings.engines).await?.index;
    let logins = Arc::new(DeviceLogins::new(credentials.keys().clone(), index.clone()));
    let password = &settings.worker_password;
    let broker = Broker::start(settings.broker, logins, password, &mut start.registry)?;
    start.announce(
        index.clone(),
        Announcement { listens: vec![("mqtt", broker.address())], ..Announcement::default() },
    );
    watch(&start.health, index, data_dir);
    let (devices, workers) = (broker.address(), broker.worker_url().clone());
    let (ops, data_dir) = (start.ops_address(), data_dir.display());
    info!(%devices, %workers, %ops, %data_dir, "broker started");
    let mut service = start.complete();
    service.close(Stage::Broker, async {
        broker.stop().await.context("what waits for devices is not saved")
    });
    out.note(format_args!("devices on {devices}, workers on {workers}; stop with Ctrl-C"));
    service.until_stopped().await
}

/// Watches the parts of a broker. Devices can log in while the index answers, which the broker only
/// reads. Waiting messages are saved while the data directory takes writes.
fn watch(health: &Health, index: Arc<dyn Index>, data_dir: &Path) {
    let name = PartName::new("index", "a-store-is-unreachable-or-refuses-writes");
    health.watch(name, Need::Required, move || {
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
