//! The settings of the broker: its addresses, its certificate and its bounds.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use push_boot::{
    descriptors::Descriptors,
    proxy_protocol::TrustedProxies,
    settings,
    settings::{ConfigErrors, address, count, on_or_off, text},
    tls,
    tune::{FOUR_WEEKS, Tuning},
};
use push_tls::server::TlsSettings;
use tracing::debug;

use super::{connection::WORKER_PACKET, websocket::Origins};

settings! {
    /// Flags of the broker.
    pub struct BrokerArgs, "Embedded MQTT broker" => BrokerValues {
        /// Let devices connect to the embedded MQTT broker on this address
        mqtt_listen: SocketAddr = ["ADDRESS", "127.0.0.1:1883"] address;
        /// Let devices also connect with MQTT over WebSocket on this address, at the path `/mqtt`, as browsers
        /// must. It has the certificate, the bounds and the logins of --mqtt-listen
        mqtt_ws_listen: Option<SocketAddr> = ["ADDRESS"] address;
        /// Let web pages of these origins (`https://app.example.com,https://www.example.com`, or `*` for all)
        /// connect over WebSocket. Pages of the address that they connect to may always, and so may
        /// programs that name no origin
        mqtt_ws_origins: Option<Origins> = ["ORIGINS"] Origins::parse;
        /// Use the certificate of this PEM file, with its chain, for the embedded MQTT broker. It is read
        /// again when the file changes. Devices then connect with TLS only
        mqtt_tls_cert: Option<String> = ["FILE"] text;
        /// Use the private key of this PEM file with --mqtt-tls-cert
        mqtt_tls_key: Option<String> = ["FILE"] text;
        /// Let devices log in without TLS on an address that other machines can reach
        mqtt_in_clear: Option<bool> = ["on|off"] on_or_off;
        /// Limit the connections of devices, as far as the limit of open files allows. An app may have as
        /// many as it leaves free
        mqtt_max_connections: usize = ["N", "100000"] count(1, MOST_CONNECTIONS);
        /// Limit the connections of devices from one address (IPv6: from one /64)
        mqtt_max_connections_per_address: usize = ["N", "1000"] count(1, MOST_CONNECTIONS);
    }
}

/// Checked flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerSettings {
    /// The address for devices.
    pub listen: SocketAddr,
    /// The address for devices that connect over WebSocket, if there is one.
    pub websocket_listen: Option<SocketAddr>,
    /// The web pages that may connect over WebSocket.
    pub websocket_origins: Origins,
    /// The certificate at these addresses; without one, devices connect unencrypted.
    pub tls: Option<TlsSettings>,
    /// The proxies that may name the client of a connection.
    pub trusted_proxies: TrustedProxies,
    /// The most connections of devices.
    pub connections: usize,
    /// The most connections of devices from one address.
    pub address_connections: usize,
    /// The most sessions, of connected devices and of others.
    pub sessions: usize,
    /// The longest time that a session outlives its connection; a device may ask for less.
    pub session_expiry: Duration,
    /// Memory for the messages that wait for all devices, in bytes.
    pub waiting: usize,
    /// Memory for the messages that wait for one device, in bytes. A message beyond that is
    /// refused.
    pub session_waiting: usize,
    /// The most messages that wait for one device. A message beyond that is refused.
    pub session_messages: usize,
    /// The listener of the workers.
    pub workers: WorkerDoorSettings,
    /// The log of failed logins.
    pub login_log: LoginLogSettings,
    /// The interval at which sessions are saved.
    pub save_interval: Duration,
    /// The folder in which sessions are saved. Without one, they end with the process.
    pub saving: Option<SavingSettings>,
}

/// The listener of the workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerDoorSettings {
    /// Its address.
    pub listen: SocketAddr,
    /// True if it uses the certificate of the devices' listener, if that has one.
    pub encrypted: bool,
    /// The most connections of workers.
    pub connections: usize,
}

/// The log of failed logins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginLogSettings {
    /// The program that the broker is a part of, as the log names it.
    pub program: &'static str,
    /// The interval at which their number is logged.
    pub interval: Duration,
}

/// The folder of saved sessions, and the interval of saving.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavingSettings {
    /// The folder of their file. It must be there.
    pub data_dir: PathBuf,
    /// The interval at which the sessions are saved.
    pub interval: Duration,
}

impl Default for WorkerDoorSettings {
    /// Serves the worker of the same process, on any port of loopback. The bound is above the
    /// number of connections that a worker can be told to open.
    fn default() -> Self {
        Self { listen: SocketAddr::from(([127, 0, 0, 1], 0)), encrypted: false, connections: 128 }
    }
}

impl Default for LoginLogSettings {
    fn default() -> Self {
        Self { program: "broker", interval: Duration::from_mins(1) }
    }
}

/// The largest number of connections, sessions or messages that can be set.
const MOST_CONNECTIONS: usize = 10_000_000;

/// The largest memory for messages that can be set, in bytes.
const MOST_WAITING: usize = 1 << 40;

/// The shortest interval of saving, because each time all sessions are written.
const LEAST_SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// The least memory for the messages of one device: two copies of the largest, and some.
const LEAST_SESSION_WAITING: usize = 3 * WORKER_PACKET as usize;

impl Default for BrokerSettings {
    /// Has the defaults of the flags, but listens on any port of loopback.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            websocket_listen: None,
            websocket_origins: Origins::default(),
            tls: None,
            trusted_proxies: TrustedProxies::default(),
            connections: 100_000,
            address_connections: 1_000,
            sessions: 100_000,
            session_expiry: Duration::from_hours(7 * 24),
            waiting: 256 << 20,
            session_waiting: 4 << 20,
            session_messages: 1_000,
            workers: WorkerDoorSettings::default(),
            login_log: LoginLogSettings::default(),
            save_interval: Duration::from_secs(30),
            saving: None,
        }
    }
}

impl BrokerSettings {
    /// Returns the constants, or what replaces them. The bound of sessions is at least
    /// `connections`.
    pub fn read(connections: usize, tuning: &mut Tuning) -> Self {
        let mut all = Self::default();
        all.sessions = all.sessions.max(connections);
        let session_waiting = LEAST_SESSION_WAITING..=MOST_WAITING;
        tuning.count("mqtt-max-sessions", &mut all.sessions, 1..=MOST_CONNECTIONS);
        tuning.time("mqtt-session-expiry", &mut all.session_expiry, Duration::ZERO..=FOUR_WEEKS);
        tuning.size("mqtt-max-waiting", &mut all.waiting, 2 * LEAST_SESSION_WAITING..=MOST_WAITING);
        tuning.size("mqtt-max-session-waiting", &mut all.session_waiting, session_waiting);
        tuning.count("mqtt-max-session-messages", &mut all.session_messages, 1..=MOST_CONNECTIONS);
        tuning.time("mqtt-save-interval", &mut all.save_interval, LEAST_SAVE_INTERVAL..=FOUR_WEEKS);
        all
    }

    /// Saves sessions in this folder.
    pub fn save_in(&mut self, data_dir: &Path) {
        let interval = self.save_interval;
        self.saving = Some(SavingSettings { data_dir: data_dir.to_owned(), interval });
    }

    /// Lowers the number of connections to what the descriptors allow.
    pub fn fit(&mut self, descriptors: Descriptors) {
        if descriptors.for_clients < self.connections {
            self.connections = descriptors.for_clients.max(1);
            let (served, limit) = (self.connections, descriptors.limit);
            debug!(served, limit, "connections of devices follow the limit of open files");
        }
    }

    /// Lowers the numbers of connections of devices and of workers to what the descriptors allow.
    pub fn fit_both(&mut self, descriptors: Descriptors) {
        self.workers.connections =
            self.workers.connections.min(descriptors.for_clients.div_ceil(4));
        let for_clients = descriptors.for_clients.saturating_sub(self.workers.connections);
        self.fit(Descriptors { for_clients, ..descriptors });
    }
}

impl BrokerArgs {
    /// Takes `--mqtt-in-clear on` as the default, as a demo does.
    pub fn default_to_in_clear(&mut self) {
        self.mqtt_in_clear.get_or_insert_with(|| "on".to_owned().into());
    }

    /// Returns false only if `--mqtt-in-clear` is off.
    pub fn is_in_clear(&self) -> bool {
        self.mqtt_in_clear.as_ref().is_some_and(|given| given.expose() != "off")
    }

    /// Checks the flags.
    pub fn check(&self, errors: &mut ConfigErrors) -> Option<BrokerSettings> {
        let given = self.values(errors);
        let connections = given.as_ref().map_or(0, |given| given.mqtt_max_connections);
        let settings = BrokerSettings::read(connections, errors.tuning());
        if settings.waiting < settings.session_waiting.saturating_mul(2) {
            errors.note("--tune mqtt-max-waiting must be at least twice mqtt-max-session-waiting");
        }
        let certificate = ("--mqtt-tls-cert", self.mqtt_tls_cert.as_ref());
        let key = ("--mqtt-tls-key", self.mqtt_tls_key.as_ref());
        let tls = tls::listener(certificate, key, errors);
        let (given, tls) = (given?, tls?);
        if !given.mqtt_in_clear.unwrap_or(false) && tls.is_none() {
            refuse_in_clear("--mqtt-listen", given.mqtt_listen, "tokens of devices", errors);
            if let Some(listen) = given.mqtt_ws_listen {
                refuse_in_clear("--mqtt-ws-listen", listen, "tokens of devices", errors);
            }
        }
        Some(BrokerSettings {
            listen: given.mqtt_listen,
            websocket_listen: given.mqtt_ws_listen,
            websocket_origins: given.mqtt_ws_origins.unwrap_or_default(),
            tls,
            connections: given.mqtt_max_connections,
            address_connections: given.mqtt_max_connections_per_address,
            ..settings
        })
    }
}

/// Notes an error if other machines can reach this listener, because `what` would cross the network
/// unencrypted.
pub fn refuse_in_clear(flag: &str, listen: SocketAddr, what: &str, errors: &mut ConfigErrors) {
    if !listen.ip().to_canonical().is_loopback() {
        errors.note(format!(
            "{flag} {listen}: other machines can reach this address, and {what} would cross the \
             network unencrypted: set --mqtt-tls-cert and --mqtt-tls-key (PUSH_MQTT_TLS_CERT, \
             PUSH_MQTT_TLS_KEY), listen on loopback, or say --mqtt-in-clear on \
             (PUSH_MQTT_IN_CLEAR)"
        ));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use push_boot::tune::TuneArgs;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        broker: BrokerArgs,
        #[command(flatten)]
        tune: TuneArgs,
    }

    fn check(flags: &[&str]) -> Result<BrokerSettings, String> {
        let cli = Cli::parse_from(std::iter::once(&"test").chain(flags));
        let mut errors = ConfigErrors::tuned(&cli.tune);
        let settings = cli.broker.check(&mut errors);
        errors.finish(settings).map_err(|errors| errors.to_string())
    }

    #[test]
    fn the_flags_have_the_defaults_that_the_settings_have() {
        let listen = "127.0.0.1:1883".parse().unwrap();
        assert_eq!(check(&[]), Ok(BrokerSettings { listen, ..BrokerSettings::default() }));
    }

    #[test]
    fn listening_in_clear_where_others_reach_it_needs_a_word() {
        for address in ["0.0.0.0:1883", "[::]:1883", "10.0.0.1:1883"] {
            let refused = check(&["--mqtt-listen", address]).unwrap_err();
            assert!(refused.contains("--mqtt-in-clear on"), "{refused}");
            let flags = ["--mqtt-listen", address, "--mqtt-in-clear", "on"];
            assert!(check(&flags).is_ok(), "{address}");
            let refused = check(&["--mqtt-ws-listen", address]).unwrap_err();
            assert!(refused.contains("--mqtt-ws-listen"), "{refused}");
        }
        for address in ["[::1]:1883", "[::ffff:127.0.0.1]:1883"] {
            assert!(check(&["--mqtt-listen", address]).is_ok(), "{address}");
        }
    }

    #[test]
    fn browsers_connect_only_if_their_address_is_set() {
        assert_eq!(check(&[]).unwrap().websocket_listen, None);
        let set = check(&["--mqtt-ws-listen=[::1]:8083", "--mqtt-ws-origins=https://a.example"]);
        assert_eq!(set.unwrap().websocket_listen, Some("[::1]:8083".parse().unwrap()));
        let refused = check(&["--mqtt-ws-origins", "a.example"]).unwrap_err();
        assert!(refused.contains("must be origins like https://app.example.com"), "{refused}");
    }

    #[test]
    fn a_device_can_always_be_sent_the_largest_message() {
        let refused = check(&["--tune", "mqtt-max-session-waiting=1MiB"]).unwrap_err();
        assert!(refused.contains("must be from 3MiB"), "{refused}");
        let refused = check(&["--tune", "mqtt-max-waiting=7MiB"]).unwrap_err();
        assert!(refused.contains("at least twice mqtt-max-session-waiting"), "{refused}");
    }

    #[test]
    fn every_connected_device_can_have_a_session() {
        let sessions = |flags: &[&str]| check(flags).unwrap().sessions;
        assert_eq!(sessions(&["--mqtt-max-connections=50"]), 100_000);
        assert_eq!(sessions(&["--mqtt-max-connections=200000"]), 200_000);
    }

    #[test]
    fn a_low_limit_of_open_files_is_shared_by_workers_and_devices() {
        let mut settings = BrokerSettings::default();
        settings.workers.connections = 1_000;
        settings.fit_both(Descriptors::of_limit(1_024));
        assert_eq!((settings.workers.connections, settings.connections), (192, 576));
    }
}
