//! From flags to settings: each value is read within its bounds, and values that depend on each
//! other are compared. All errors are reported together.

use std::{
    net::SocketAddr,
    num::{NonZeroU32, NonZeroUsize},
};

use push_index::REMOVED_APP_REFUSES;
use push_model::{
    ledger::Retention,
    secret::{BadSecret, Secret, SecretHash},
};
use push_service::{
    credentials::CredentialSettings,
    secret::SecretSetting,
    settings::{ConfigErrors, address, count, duration, share, size, some_time, variable},
    tls,
};
use push_tls::server::TlsSettings;

use super::{
    AppSettings, BrokerAuthSettings, HttpSettings, IngestArgs, LINE_MEMORY, PublisherSettings,
    Rules, Settings,
};

/// Connections served at once, if the operator does not say how many.
const MAX_CONNECTIONS: usize = 10_000;

impl IngestArgs {
    /// The settings that these flags stand for. What is wrong with them is added to `errors`.
    /// `ledger_retention` comes from the flags of the engines, which all programs have.
    pub fn check(
        &self,
        ledger_retention: Option<Retention>,
        errors: &mut ConfigErrors,
    ) -> Option<Settings> {
        let listener = self.check_listener(errors);
        let ops_listen = errors.read("--ops-listen", &self.ops_listen, address);
        let drain_deadline = errors.read("--drain-deadline", &self.drain_deadline, duration);
        let http = self.check_http(errors);
        let rules = errors
            .read("--max-client-ids", &self.max_client_ids, count(1, 100_000))
            .map(|max_client_ids| Rules { max_client_ids });
        let apps = self.check_apps(errors);
        let publisher = self.check_publisher(errors);
        let broker_auth = self.check_broker_auth(errors);
        let trace_ratio = errors.read("--trace-ratio", &self.trace_ratio, share);
        let (listen, tls) = listener?;
        Some(Settings {
            listen,
            tls,
            ops_listen: ops_listen?,
            drain_deadline: drain_deadline?,
            http: http?,
            rules: rules?,
            apps: apps?,
            publisher: publisher?,
            ledger_retention: ledger_retention?,
            device_credentials: None,
            broker_auth: broker_auth?,
            is_traced: false,
            trace_ratio: trace_ratio?,
        })
    }

    /// None if something is wrong; `Some(None)` if no broker may ask.
    fn check_broker_auth(&self, errors: &mut ConfigErrors) -> Option<Option<BrokerAuthSettings>> {
        const SECRET: &str = "--broker-auth-secret";
        const PASSWORD: &str = "--mqtt-worker-password";
        let secret = SecretSetting {
            text: self.broker_auth_secret.as_ref(),
            file: self.broker_auth_secret_file.as_deref(),
        };
        let password = SecretSetting {
            text: self.mqtt_worker_password.as_ref(),
            file: self.mqtt_worker_password_file.as_deref(),
        };
        if !secret.is_given() && password.is_given() {
            errors.note(format!("{PASSWORD} ({}): needs {SECRET}", variable(PASSWORD)));
            return None;
        }
        let secret = errors.read_secret(SECRET, secret, hash);
        let worker_password = errors.read_secret(PASSWORD, password, hash);
        let (secret, worker_password) = (secret?, worker_password?);
        Some(secret.map(|secret| BrokerAuthSettings { secret, worker_password }))
    }

    fn check_listener(
        &self,
        errors: &mut ConfigErrors,
    ) -> Option<(SocketAddr, Option<TlsSettings>)> {
        let listen = errors.read("--listen", &self.listen, address);
        let in_clear = errors.read("--http-in-clear", &self.http_in_clear, on_or_off);
        let certificate = ("--tls-cert", self.tls_cert.as_deref());
        let tls = tls::listener(certificate, ("--tls-key", self.tls_key.as_deref()), errors);
        if let (Some(listen), Some(None), Some(false)) = (listen, &tls, in_clear)
            && !listen.ip().to_canonical().is_loopback()
        {
            errors.note(format!(
                "--listen (PUSH_LISTEN): {listen} can be reached from other machines, and secrets \
                 would go there in clear: set --tls-cert and --tls-key (PUSH_TLS_CERT, \
                 PUSH_TLS_KEY), or --http-in-clear on (PUSH_HTTP_IN_CLEAR) if the network can be \
                 trusted or a proxy ends TLS"
            ));
        }
        Some((listen?, tls?))
    }

    fn check_http(&self, errors: &mut ConfigErrors) -> Option<HttpSettings> {
        let fast_path = errors.read("--fast-path", &self.fast_path, on_or_off);
        let max_connections = match &self.max_connections {
            None => Some(None),
            Some(text) => errors.read("--max-connections", text, count(1, 1_000_000)).map(Some),
        };
        let max_connections_per_address = match &self.max_connections_per_address {
            None => Some(None),
            Some(text) => {
                let flag = "--max-connections-per-address";
                errors.read(flag, text, count(1, 1_000_000)).map(Some)
            }
        };
        let header_timeout = errors.read("--header-timeout", &self.header_timeout, some_time);
        let body_timeout = errors.read("--body-timeout", &self.body_timeout, some_time);
        let idle_timeout = errors.read("--idle-timeout", &self.idle_timeout, some_time);
        let max_header =
            errors.read("--max-header", &self.max_header, size_between(1024, 1024 * 1024));
        let max_body =
            errors.read("--max-body", &self.max_body, size_between(1024, 64 * 1024 * 1024));
        let max_batch_body = errors.read(
            "--max-batch-body",
            &self.max_batch_body,
            size_between(1024, 64 * 1024 * 1024),
        );
        let max_batch_lines =
            errors.read("--max-batch-lines", &self.max_batch_lines, count(1, 100_000));
        let h2_streams = errors.read("--h2-streams", &self.h2_streams, count(1, 10_000));
        let max_buffered =
            errors.read("--max-buffered", &self.max_buffered, size_between(1024, 1 << 40));
        let per_app = self.max_buffered_per_app.as_ref();
        let per_app = per_app
            .map(|text| errors.read("--max-buffered-per-app", text, size_between(1024, 1 << 40)));
        let min_body_rate = errors.read("--min-body-rate", &self.min_body_rate, size);
        let batch = max_batch_body.zip(max_batch_lines);
        let batch = batch.map(|(body, lines)| body + lines * LINE_MEMORY);
        if let (Some(single), Some(batch), Some(buffered)) = (max_body, batch, max_buffered) {
            hold_largest_requests(
                errors,
                "--max-buffered (PUSH_MAX_BUFFERED)",
                buffered,
                single,
                batch,
            );
        }
        let max_buffered_per_app = match per_app {
            Some(per_app) => per_app,
            None => max_body.zip(batch).zip(max_buffered).map(|((single, batch), buffered)| {
                (buffered / 4).max(single).max(2 * batch).min(buffered)
            }),
        };
        if let (Some(single), Some(batch), Some(per_app)) = (max_body, batch, max_buffered_per_app)
            && self.max_buffered_per_app.is_some()
        {
            let name = "--max-buffered-per-app (PUSH_MAX_BUFFERED_PER_APP)";
            hold_largest_requests(errors, name, per_app, single, batch);
        }
        Some(HttpSettings {
            fast_path: fast_path?,
            max_connections: max_connections?.unwrap_or(MAX_CONNECTIONS),
            max_connections_is_given: self.max_connections.is_some(),
            max_connections_per_address: max_connections_per_address?,
            header_timeout: header_timeout?,
            body_timeout: body_timeout?,
            idle_timeout: idle_timeout?,
            max_header: max_header?,
            max_body: max_body?,
            max_batch_body: max_batch_body?,
            max_batch_lines: max_batch_lines?,
            h2_streams: h2_streams?,
            max_buffered: max_buffered?,
            max_buffered_per_app: max_buffered_per_app?,
            min_body_rate: NonZeroUsize::new(min_body_rate?),
        })
    }

    fn check_apps(&self, errors: &mut ConfigErrors) -> Option<AppSettings> {
        let fresh = errors.read("--app-fresh", &self.app_fresh, duration);
        let stale = errors.read("--app-stale", &self.app_stale, duration);
        let max_apps = errors.read("--max-apps", &self.max_apps, count(1, 100_000_000));
        let max_failed_logins =
            errors.read("--max-failed-logins", &self.max_failed_logins, count(0, 1_000_000));
        let max_devices = errors.read("--app-max-devices", &self.app_max_devices, count_or_none);
        let max_waiting = errors.read("--app-max-waiting", &self.app_max_waiting, count_or_none);
        let max_ledger_entries =
            errors.read("--app-max-ledger-entries", &self.app_max_ledger_entries, count_or_none);
        let activity_interval =
            errors.read("--activity-interval", &self.activity_interval, some_time);
        let index_timeout = errors.read("--index-timeout", &self.index_timeout, some_time);
        if let (Some(fresh), Some(stale)) = (fresh, stale)
            && fresh > stale
        {
            errors.note("--app-stale (PUSH_APP_STALE): must not be shorter than --app-fresh");
        }
        // The index refuses registrations for a removed app only for `REMOVED_APP_REFUSES`. A
        // record that is used for longer would let them in again.
        if stale.is_some_and(|stale| stale > REMOVED_APP_REFUSES / 2) {
            errors.note("--app-stale (PUSH_APP_STALE): must not be longer than 3h");
        }
        Some(AppSettings {
            fresh: fresh?,
            stale: stale?,
            max_apps: max_apps?,
            max_failed_logins: NonZeroU32::new(max_failed_logins?),
            max_devices: max_devices?,
            max_waiting: max_waiting?,
            max_ledger_entries: max_ledger_entries?,
            activity_interval: activity_interval?,
            index_timeout: index_timeout?,
        })
    }

    fn check_publisher(&self, errors: &mut ConfigErrors) -> Option<PublisherSettings> {
        let batch_jobs = errors.read("--batch-jobs", &self.batch_jobs, count(1, 65_536));
        let batch_bytes =
            errors.read("--batch-bytes", &self.batch_bytes, size_between(1024, 64 * 1024 * 1024));
        let window = errors.read("--publish-window", &self.publish_window, count(1, 1024));
        let waiting = errors.read("--publish-waiting", &self.publish_waiting, count(1, 1_000_000));
        let timeout = errors.read("--publish-timeout", &self.publish_timeout, some_time);
        Some(PublisherSettings {
            batch_jobs: batch_jobs?,
            batch_bytes: batch_bytes?,
            window: window?,
            waiting: waiting?,
            timeout: timeout?,
        })
    }
}

impl Settings {
    /// Checks that devices of a broker that asks can be told apart. Without keys every one of them
    /// would be refused, which looks like wrong tokens.
    pub fn check_device_keys(&self, credentials: &CredentialSettings, errors: &mut ConfigErrors) {
        if self.broker_auth.is_some() && credentials.key_file.is_none() {
            errors.note(
                "--broker-auth-secret (PUSH_BROKER_AUTH_SECRET): needs --device-keys \
                 (PUSH_DEVICE_KEYS), because without keys every device of the broker is refused: \
                 `pushctl key create` makes them",
            );
        }
    }
}

/// The hash of a secret that was chosen for brokers or workers: a guess would show which devices
/// connect, or let a stranger publish to all of them.
fn hash(text: &str) -> Result<SecretHash, String> {
    let secret = Secret::chosen(text).map_err(|bad| match bad {
        BadSecret::Weak => {
            "could be guessed: take a random one, for example from `openssl rand -hex 32`"
                .to_owned()
        }
        bad => bad.to_string(),
    })?;
    Ok(SecretHash::of(&secret))
}

/// Checks that a memory of so many bytes holds one request of each kind: `single` bytes, and in half
/// of it `batch` bytes.
fn hold_largest_requests(
    errors: &mut ConfigErrors,
    name: &str,
    bytes: usize,
    single: usize,
    batch: usize,
) {
    if single > bytes {
        errors.note(format!("{name}: must hold one body of --max-body"));
    }
    if batch > bytes / 2 {
        errors.note(format!(
            "{name}: half of it must hold one body of --max-batch-body and 1KiB for each of \
             --max-batch-lines"
        ));
    }
}

fn count_or_none(text: &str) -> Result<Option<NonZeroU32>, String> {
    if text == "none" {
        return Ok(None);
    }
    let count = count(NonZeroU32::MIN, NonZeroU32::MAX)(text);
    count.map(Some).map_err(|wrong| format!("{wrong}, or none"))
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("must be on or off".to_owned()),
    }
}

fn size_between(min: usize, max: usize) -> impl Fn(&str) -> Result<usize, String> {
    move |text| match size(text)? {
        n if (min..=max).contains(&n) => Ok(n),
        _ => Err(format!("must be from {min} to {max} bytes")),
    }
}
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;
    use push_service::descriptors::Descriptors;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: IngestArgs,
    }

    fn check(flags: &[&str]) -> Result<Settings, ConfigErrors> {
        check_as_given(&[&["--http-in-clear=on"], flags].concat())
    }

    fn check_as_given(flags: &[&str]) -> Result<Settings, ConfigErrors> {
        let cli = Cli::parse_from(std::iter::once(&"ingest").chain(flags));
        let mut errors = ConfigErrors::default();
        let settings = cli.args.check(Some(Retention::all(Duration::from_secs(60))), &mut errors);
        errors.finish(settings)
    }

    #[test]
    fn the_defaults_are_valid_and_let_a_disabled_app_push_for_at_most_five_seconds() {
        let settings = check(&[]).unwrap();
        assert!(settings.apps.fresh + settings.apps.index_timeout <= Duration::from_secs(5));
        assert!(settings.publisher.timeout < settings.drain_deadline);
    }

    #[test]
    fn other_machines_reach_the_service_in_clear_only_if_that_was_asked_for() {
        for flags in [&[][..], &["--listen=[::]:8080"], &["--listen=192.0.2.1:80"]] {
            let errors = check_as_given(flags).unwrap_err().to_string();
            assert!(errors.contains("--http-in-clear on (PUSH_HTTP_IN_CLEAR)"), "{errors}");
            assert!(check(flags).unwrap().tls.is_none());
        }
        for listen in ["--listen=127.0.0.2:1", "--listen=[::1]:1", "--listen=[::ffff:127.0.0.1]:1"]
        {
            assert!(check_as_given(&[listen]).is_ok(), "{listen}");
        }
        assert!(check_as_given(&["--http-in-clear=yes"]).is_err());
        let half = check_as_given(&["--tls-cert=/a"]).unwrap_err().to_string();
        assert!(half.contains("must be set together"), "{half}");
    }

    #[test]
    fn every_wrong_setting_is_named_at_once() {
        let errors = check(&[
            "--listen=nowhere",
            "--fast-path=maybe",
            "--body-timeout=0s",
            "--max-body=1GiB",
            "--batch-jobs=0",
            "--max-batch-body=1",
            "--max-batch-lines=0",
            "--app-stale=1s",
            "--app-max-devices=0",
            "--app-max-waiting=0",
            "--app-max-ledger-entries=x",
            "--activity-interval=0s",
        ])
        .unwrap_err()
        .to_string();
        for env in [
            "PUSH_LISTEN",
            "PUSH_FAST_PATH",
            "PUSH_BODY_TIMEOUT",
            "PUSH_MAX_BODY",
            "PUSH_BATCH_JOBS",
            "PUSH_MAX_BATCH_BODY",
            "PUSH_MAX_BATCH_LINES",
            "PUSH_APP_STALE",
            "PUSH_APP_MAX_DEVICES",
            "PUSH_APP_MAX_WAITING",
            "PUSH_APP_MAX_LEDGER_ENTRIES",
            "PUSH_ACTIVITY_INTERVAL",
        ] {
            assert!(errors.contains(env), "{env} in {errors}");
        }
    }

    #[test]
    fn brokers_may_ask_only_with_a_secret_that_cannot_be_guessed() {
        assert!(check(&[]).unwrap().broker_auth.is_none());
        const PASSWORD: &str = "9f45b0e2bdf55d22adf73071de7dee06";
        let secret = "--broker-auth-secret=1ed75f74c8298a20dfc28ee17fa50247".to_owned();
        let password = format!("--mqtt-worker-password={PASSWORD}");
        let settings = check(&[&secret]).unwrap().broker_auth.unwrap();
        assert!(settings.worker_password.is_none());
        let settings = check(&[&secret, &password]).unwrap().broker_auth.unwrap();
        assert!(settings.worker_password.unwrap().verify(PASSWORD.as_bytes()));
        let errors = check(&[&password]).unwrap_err().to_string();
        assert!(errors.contains("needs --broker-auth-secret"), "{errors}");
        let errors = check(&["--broker-auth-secret=hunter2"]).unwrap_err().to_string();
        assert!(errors.contains("32 to 256") && !errors.contains("hunter2"), "{errors}");
        let weak = "s".repeat(32);
        let (weak_secret, weak_password) =
            (format!("--broker-auth-secret={weak}"), format!("--mqtt-worker-password={weak}"));
        for flags in [&[&*weak_secret][..], &[&secret, &weak_password]] {
            let errors = check(flags).unwrap_err().to_string();
            assert!(errors.contains("guess") && !errors.contains(&weak), "{errors}");
        }
    }

    #[test]
    fn brokers_may_ask_only_if_there_are_keys_that_tell_devices_apart() {
        let secret = "--broker-auth-secret=1ed75f74c8298a20dfc28ee17fa50247".to_owned();
        let checked = |settings: &Settings, keys: Option<&str>| {
            let (key_file, token_ttl) = (keys.map(Into::into), Duration::from_secs(60));
            let mut errors = ConfigErrors::default();
            settings.check_device_keys(&CredentialSettings { key_file, token_ttl }, &mut errors);
            errors.finish(Some(())).map_err(|errors| errors.to_string())
        };
        let (without, with) = (check(&[]).unwrap(), check(&[&secret]).unwrap());
        assert_eq!([checked(&without, None), checked(&with, Some("/keys"))], [Ok(()), Ok(())]);
        let error = checked(&with, None).unwrap_err();
        assert!(error.contains("PUSH_DEVICE_KEYS") && error.contains("key create"), "{error}");
    }

    #[test]
    fn the_fast_path_is_on_unless_it_is_switched_off() {
        assert!(check(&[]).unwrap().http.fast_path);
        assert!(check(&["--fast-path=on"]).unwrap().http.fast_path);
        assert!(!check(&["--fast-path=off"]).unwrap().http.fast_path);
    }

    #[test]
    fn one_address_may_have_half_of_the_connections_that_the_descriptors_allow() {
        let mut http = check(&[]).unwrap().http;
        assert_eq!((http.max_connections, http.max_connections_per_address()), (10_000, 5_000));
        http.fit(Descriptors::of_limit(1_000_000));
        assert_eq!(http.max_connections, 10_000);
        http.fit(Descriptors::of_limit(1024));
        assert_eq!((http.max_connections, http.max_connections_per_address()), (768, 384));
        let proxy = check(&["--max-connections-per-address=9000"]).unwrap().http;
        assert_eq!(proxy.max_connections_per_address(), 9000);
    }

    #[test]
    fn fewer_connections_than_wanted_are_worth_a_warning_if_the_operator_wants_them_or_few_are_left()
     {
        let http = |flags: &[&str]| check(flags).unwrap().http;
        let by_default = http(&[]);
        assert!(!by_default.is_shortage(9_744), "it is enough for most");
        assert!(by_default.is_shortage(768));
        assert!(http(&["--max-connections=10000"]).is_shortage(9_744));
    }

    #[test]
    fn a_batch_request_must_fit_into_half_of_the_memory_for_bodies() {
        let with = |buffered: &str| {
            check(&["--max-batch-body=1MiB", "--max-batch-lines=1024", "--max-body=1KiB", buffered])
        };
        assert!(with("--max-buffered=4MiB").is_ok());
        let errors = with("--max-buffered=4194303B").unwrap_err().to_string();
        assert!(errors.contains("half of it must hold"), "{errors}");
        assert!(with("--max-buffered-per-app=4MiB").is_ok());
        let errors = with("--max-buffered-per-app=4194303B").unwrap_err().to_string();
        assert!(errors.contains("PUSH_MAX_BUFFERED_PER_APP"), "{errors}");
        assert!(errors.contains("half of it must hold"), "{errors}");
    }

    #[test]
    fn an_app_gets_a_quarter_of_the_memory_unless_its_largest_requests_need_more() {
        let per_app = |flags: &[&str]| check(flags).unwrap().http.max_buffered_per_app;
        assert_eq!(per_app(&[]), 32 << 20);
        assert_eq!(per_app(&["--max-buffered=1GiB"]), 256 << 20);
        assert_eq!(per_app(&["--max-buffered-per-app=50MiB"]), 50 << 20);
        let large_batches = ["--max-batch-body=31MiB", "--max-batch-lines=1024"];
        assert_eq!(per_app(&large_batches), 64 << 20);
        let small = ["--max-buffered=64KiB", "--max-batch-body=1KiB", "--max-batch-lines=1"];
        assert_eq!(per_app(&[&small[..], &["--max-body=60KiB"]].concat()), 60 << 10);
    }

    #[test]
    fn the_least_rate_of_bodies_can_be_switched_off() {
        let rate = |flags: &[&str]| check(flags).unwrap().http.min_body_rate;
        assert_eq!(rate(&[]), NonZeroUsize::new(1024));
        assert_eq!(rate(&["--min-body-rate=0B"]), None);
    }
}
