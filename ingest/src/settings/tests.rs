//! Settings as an operator gives them, right and wrong.

use std::{num::NonZeroUsize, time::Duration};

use clap::Parser;
use push_boot::{
    credentials::CredentialSettings, descriptors::Descriptors, settings::ConfigErrors,
    tune::TuneArgs,
};
use push_model::ledger::Retention;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: IngestArgs,
    #[command(flatten)]
    tune: TuneArgs,
}

fn check(flags: &[&str]) -> Result<Settings, ConfigErrors> {
    check_as_given(&[&["--http-in-clear=on"], flags].concat())
}

fn check_as_given(flags: &[&str]) -> Result<Settings, ConfigErrors> {
    let cli = Cli::parse_from(std::iter::once(&"ingest").chain(flags));
    let mut errors = ConfigErrors::tuned(&cli.tune);
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
    for listen in ["--listen=127.0.0.2:1", "--listen=[::1]:1", "--listen=[::ffff:127.0.0.1]:1"] {
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
        "--tune=body-timeout=0s,max-body=1GiB,app-stale=1s",
        "--max-batch-body=1",
        "--max-batch-lines=0",
        "--app-max-devices=0",
        "--app-max-waiting=0",
        "--app-max-ledger-entries=x",
    ])
    .unwrap_err()
    .to_string();
    for env in [
        "PUSH_LISTEN",
        "body-timeout must be from 1ms",
        "max-body must be from 1KiB to 64MiB",
        "PUSH_MAX_BATCH_BODY",
        "PUSH_MAX_BATCH_LINES",
        "app-stale must not be shorter",
        "PUSH_APP_MAX_DEVICES",
        "PUSH_APP_MAX_WAITING",
        "PUSH_APP_MAX_LEDGER_ENTRIES",
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
        settings.check_device_keys(
            &CredentialSettings { key_file, token_ttl, url: None, websocket_url: None },
            &mut errors,
        );
        errors.finish(Some(())).map_err(|errors| errors.to_string())
    };
    let (without, with) = (check(&[]).unwrap(), check(&[&secret]).unwrap());
    assert_eq!([checked(&without, None), checked(&with, Some("/keys"))], [Ok(()), Ok(())]);
    let error = checked(&with, None).unwrap_err();
    assert!(error.contains("PUSH_DEVICE_KEYS") && error.contains("key create"), "{error}");
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
fn fewer_connections_than_wanted_are_worth_a_warning_if_the_operator_wants_them_or_few_are_left() {
    let http = |flags: &[&str]| check(flags).unwrap().http;
    let by_default = http(&[]);
    assert!(!by_default.is_shortage(9_744), "it is enough for most");
    assert!(by_default.is_shortage(768));
    assert!(http(&["--max-connections=10000"]).is_shortage(9_744));
}

#[test]
fn a_batch_request_must_fit_into_half_of_the_memory_for_bodies() {
    let with = |buffered: &str| {
        check(&[
            "--max-batch-body=1MiB",
            "--max-batch-lines=1024",
            "--tune=max-body=1KiB",
            buffered,
        ])
    };
    assert!(with("--max-buffered=4MiB").is_ok());
    let errors = with("--max-buffered=4194303B").unwrap_err().to_string();
    assert!(errors.contains("half of it must hold"), "{errors}");
}

#[test]
fn an_app_gets_a_quarter_of_the_memory_unless_its_largest_requests_need_more() {
    let per_app = |flags: &[&str]| check(flags).unwrap().http.max_buffered_per_app;
    assert_eq!(per_app(&[]), 32 << 20);
    assert_eq!(per_app(&["--max-buffered=1GiB"]), 256 << 20);
    let large_batches = ["--max-batch-body=31MiB", "--max-batch-lines=1024"];
    assert_eq!(per_app(&large_batches), 64 << 20);
    let small = ["--max-buffered=64KiB", "--max-batch-body=1KiB", "--max-batch-lines=1"];
    assert_eq!(per_app(&[&small[..], &["--tune=max-body=60KiB"]].concat()), 60 << 10);
}

#[test]
fn the_least_rate_of_bodies_can_be_switched_off() {
    let rate = |flags: &[&str]| check(flags).unwrap().http.body_time().least_rate;
    assert_eq!(rate(&[]), NonZeroUsize::new(1024));
    assert_eq!(rate(&["--tune=min-body-rate=0B"]), None);
}

#[test]
fn a_push_with_as_many_client_ids_as_it_may_name_fits_into_a_body() {
    let max_body = |flags: &[&str]| check(flags).unwrap().http.max_body;
    assert_eq!(max_body(&[]), 512 << 10);
    assert_eq!(max_body(&["--max-client-ids=100000"]), (256 << 10) + 13_100_000);
    assert_eq!(max_body(&["--max-client-ids=100000", "--tune=max-body=1MiB"]), 1 << 20);
}
