//! The transports themselves, without the service around them: the outcome of each device of a batch,
//! compared with what its provider was sent.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use push_model::{
    app::AppKey,
    device::{Target, TransportKind},
    ids::{AudienceKind, MessageId},
    ledger::{FailReason, RetryReason},
    registration::RegistrationEpoch,
    time::UnixMillis,
};
use push_outbound::{Origin, OutboundSettings, Owner, Permission};
use push_providers::{
    Provider,
    apns::Apns,
    by_kind::stored_token,
    fcm::Fcm,
    webpush::{Credential, WebPush},
};
use push_tests::{
    certificates::Authority,
    phone_server::{Face, PhoneServer, Reply, fcm_error, fcm_field_error},
    stack::APP,
};
use push_transports::{
    Lifetime, Outcome, Outgoing, Sending, Transport as _,
    http::{Credentials, HttpSettings, HttpTransport, NoCredential},
};
use rcgen::KeyPair;
use ring::rand::SystemRandom;
use serde_json::json;
use tokio::time::Instant;

use super::{apns_token, browser, fcm_token, one_copy_each, service_account};

/// The time of a request that is answered. A thousand at a time share the processors of a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// One credential for every app.
#[derive(Debug)]
struct Fixed(Bytes);

#[async_trait]
impl Credentials for Fixed {
    async fn credential(
        &self,
        _: &AppKey,
        _: TransportKind,
    ) -> Result<Option<Bytes>, NoCredential> {
        Ok(Some(self.0.clone()))
    }
}

/// A transport whose provider is a server of the test.
pub(super) struct Driven<P: Provider> {
    transport: HttpTransport<P>,
    pub(super) provider: PhoneServer,
    /// Its file is read again for each connection.
    _authority: Authority,
    token: Box<dyn Fn(usize) -> String>,
}

pub(super) fn settings(url: &str, authority: &Authority, allow: &str) -> HttpSettings {
    let origin = Origin::parse(url, Owner::Operator).unwrap();
    let outbound = OutboundSettings {
        permission: Permission::parse(allow).unwrap(),
        authorities: Some(authority.file().to_owned()),
        ..OutboundSettings::new(Arc::new(|| 0.0))
    };
    HttpSettings {
        fcm: origin.clone(),
        fcm_a_second: None,
        apns: origin.clone(),
        apns_sandbox: origin,
        outbound,
        window: 1000,
        request_timeout: PATIENCE,
        delivery_timeout: Duration::from_secs(60),
    }
}

impl<P: Provider> Driven<P> {
    pub(super) fn new(
        provider: PhoneServer,
        credential: &serde_json::Value,
        (settings, authority): (HttpSettings, Authority),
        token: impl Fn(usize) -> String + 'static,
    ) -> Self {
        let transport = transport(credential, settings);
        Self { transport, provider, _authority: authority, token: Box::new(token) }
    }

    /// Delivers a message to so many devices.
    pub(super) async fn deliver(&self, devices: usize) -> Vec<Outcome> {
        deliver(&self.transport, devices, &*self.token).await
    }

    /// Delivers a message to so many devices, each of which gets one copy.
    pub(super) async fn all_sent(&self, devices: usize) {
        let outcomes = self.deliver(devices).await;
        assert_eq!(numbers(&outcomes), [("Sent".to_owned(), devices)].into());
        one_copy_each(&self.provider.record(), devices);
    }
}

async fn apns() -> Driven<Apns> {
    apns_within(PATIENCE).await
}

/// APNs, whose requests have so much time.
async fn apns_within(request_timeout: Duration) -> Driven<Apns> {
    let provider = PhoneServer::start(Face::Apns, None).await;
    let account = json!({
        "key_pem": KeyPair::generate().unwrap().serialize_pem(), "key_id": "ABC123DEFG",
        "team_id": "TEAM123456", "topic": "com.example.news", "sandbox": false,
    });
    let authority = Authority::new();
    let settings = settings(&provider.url(), &authority, "");
    let settings = HttpSettings { request_timeout, ..settings };
    Driven::new(provider, &account, (settings, authority), apns_token)
}

/// FCM, with the service of its access tokens.
async fn fcm() -> (Driven<Fcm>, PhoneServer) {
    let authority = Authority::new();
    let provider = PhoneServer::start(Face::Fcm, None).await;
    let tokens = PhoneServer::start(Face::Tokens, Some(&authority.local_server())).await;
    let account = service_account("project", &format!("{}/token", tokens.url()));
    let settings = settings(&provider.url(), &authority, "127.0.0.0/8");
    (Driven::new(provider, &account, (settings, authority), fcm_token), tokens)
}

/// Delivers a message to so many devices.
pub(super) async fn deliver<P: Provider>(
    transport: &HttpTransport<P>,
    devices: usize,
    token: &dyn Fn(usize) -> String,
) -> Vec<Outcome> {
    let app = AppKey::first(APP.parse().unwrap());
    let message_id = MessageId::issue(&app.id, AudienceKind::Broadcast);
    let now = UnixMillis::now();
    let end = now.plus_seconds(600);
    let payload = json!({
        "message_id": message_id.to_string(), "app_id": APP, "type": 1,
        "notification": {"notification_type": 1, "title": "t", "desc": "b", "open_type": 1},
        "accepted_at": now.0, "sequence": 1, "expires_at": end.0,
    });
    let lifetime = Lifetime::Until(end);
    let payload = Bytes::from(payload.to_string());
    let message = Outgoing { app, message_id, payload, lifetime };
    let targets: Vec<_> = (0..devices)
        .map(|n| Target {
            client_id: format!("device-{n}").parse().unwrap(),
            transport: P::KIND,
            token: Some(token(n).into()),
            epoch: RegistrationEpoch(1),
        })
        .collect();
    let outcomes = transport.deliver(&message, &targets, &Sending::unrestricted(now)).await;
    assert_eq!(outcomes.len(), devices);
    outcomes
}

/// A transport with one account.
pub(super) fn transport<P: Provider>(
    credential: &serde_json::Value,
    settings: HttpSettings,
) -> HttpTransport<P> {
    let credentials = Arc::new(Fixed(credential.to_string().into()));
    HttpTransport::new(settings.open().unwrap(), credentials, None, settings)
}

/// Web Push, whose devices are browsers with endpoints at this server.
pub(super) fn web_push(server: PhoneServer, authority: Authority, allow: &str) -> Driven<WebPush> {
    let credential = Credential::generate("mailto:push@example.com", &SystemRandom::new()).unwrap();
    let credential = serde_json::to_value(&credential).unwrap();
    let url = server.url();
    let token = move |n| {
        let token = browser(&format!("{url}/push/{n}"));
        let random = SystemRandom::new();
        let stored = stored_token(TransportKind::Webpush, Some(&token), &random).unwrap();
        stored.unwrap().into_owned()
    };
    let settings = settings(&server.url(), &authority, allow);
    Driven::new(server, &credential, (settings, authority), token)
}

/// The number of devices with each outcome.
pub(super) fn numbers(outcomes: &[Outcome]) -> BTreeMap<String, usize> {
    let mut numbers = BTreeMap::new();
    for outcome in outcomes {
        let name = match outcome {
            Outcome::Later(reason, _) => format!("Later({reason:?})"),
            outcome => format!("{outcome:?}"),
        };
        *numbers.entry(name).or_default() += 1;
    }
    numbers
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_requests_never_exceed_the_streams_that_a_server_allows() {
    let driven = apns().await;
    driven.provider.behave(|wire| (wire.streams, wire.punishes) = (100, true));
    driven.all_sent(10_000).await;
    let record = driven.provider.record();
    assert_eq!(record.punished, 0);
    assert!(record.connections <= 8, "{}", record.connections);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_a_goodbye_did_not_begin_are_sent_on_another_connection() {
    let driven = apns().await;
    driven.provider.behave(|wire| (wire.streams, wire.goodbye_after) = (100, Some(150)));
    driven.all_sent(2000).await;
    assert!(driven.provider.record().connections >= 13);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_streams_are_sent_again_at_once() {
    let driven = apns().await;
    driven.provider.answer(|device, times| match times {
        0 if device.ends_with(['3', '6', '9']) => Reply::refused_stream(),
        _ => Reply::taken(),
    });
    let begun = Instant::now();
    driven.all_sent(300).await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_connection_leaves_no_device_failed_and_none_that_was_asked_untold() {
    for cut in (0..40).chain([50, 64, 75, 90, 120, 180, 400, 1000]) {
        let driven = apns().await;
        driven.provider.behave(|wire| wire.cut_after = Some(cut));
        let outcomes = driven.deliver(20).await;
        let record = driven.provider.record();
        for (n, outcome) in outcomes.iter().enumerate() {
            let asked = record.asked.contains_key(&apns_token(n));
            match outcome {
                Outcome::Sent => assert!(record.taken.contains_key(&apns_token(n))),
                Outcome::Undecided => {}
                Outcome::Later(RetryReason::TransportAway | RetryReason::Busy, _) => {
                    assert!(!asked, "cut after {cut}: {n} was asked");
                }
                outcome => panic!("cut after {cut}: {outcome:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_black_hole_is_left_within_a_bound() {
    let driven = apns().await;
    driven.provider.behave(|wire| wire.is_black_hole = true);
    let begun = Instant::now();
    let outcomes = driven.deliver(100).await;
    assert_eq!(numbers(&outcomes), [("Later(TransportAway)".to_owned(), 100)].into());
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    let begun = Instant::now();
    driven.deliver(100).await;
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_leaves_devices_undecided_and_only_as_long_as_a_request_may_take() {
    let driven = apns_within(Duration::from_secs(8)).await;
    driven.provider.answer(|_, _| Reply::silence());
    let begun = Instant::now();
    let outcomes = driven.deliver(50).await;
    let numbers = numbers(&outcomes);
    assert!(numbers.contains_key("Undecided"), "{numbers:?}");
    assert!(!numbers.contains_key("Sent"), "{numbers:?}");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_requests_share_one_access_token() {
    let (driven, tokens) = fcm().await;
    tokens.answer(|_, _| Reply::taken().after(Duration::from_secs(1)));
    driven.all_sent(1000).await;
    assert_eq!(tokens.record().requests, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_whose_new_access_token_is_refused_too_is_left_alone() {
    let (driven, tokens) = fcm().await;
    driven.provider.answer(|_, _| Reply::answer(401, ""));
    let outcomes = driven.deliver(200).await;
    assert_eq!(numbers(&outcomes), [("Later(TransportAway)".to_owned(), 200)].into());
    assert_eq!(tokens.record().requests, 2);
    let asked = driven.provider.record().requests;
    let outcomes = driven.deliver(200).await;
    assert_eq!(numbers(&outcomes), [("Later(TransportAway)".to_owned(), 200)].into());
    assert_eq!(driven.provider.record().requests, asked);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_401_does_not_stop_the_account() {
    let (driven, tokens) = fcm().await;
    driven.provider.answer(|device, _| {
        let is_odd = ["000100", "000900", "001700"].iter().any(|end| device.ends_with(end));
        if is_odd { Reply::answer(401, fcm_error(401, "")) } else { Reply::taken() }
    });
    let outcomes = driven.deliver(2000).await;
    let expected = [("Later(Error)".to_owned(), 3), ("Sent".to_owned(), 1997)];
    assert_eq!(numbers(&outcomes), expected.into());
    assert!(tokens.record().requests <= 2, "{}", tokens.record().requests);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttled_account_holds_its_devices_for_the_time_that_was_named() {
    let (driven, _tokens) = fcm().await;
    let throttle = driven
        .provider
        .while_set(Reply::answer(429, fcm_error(429, "QUOTA_EXCEEDED")).retry_after(8));
    let outcomes = driven.deliver(3000).await;
    assert_eq!(numbers(&outcomes), [("Later(Busy)".to_owned(), 3000)].into());
    let asked = driven.provider.record().requests;
    assert!(asked <= 1100, "{asked} requests until the first answers");
    driven.deliver(3000).await;
    assert_eq!(driven.provider.record().requests, asked, "none before that time");
    throttle.store(false, std::sync::atomic::Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(8)).await;
    driven.provider.forget();
    driven.all_sent(3000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_message_is_refused_for_every_device_and_soon_not_sent_any_more() {
    let (driven, _tokens) = fcm().await;
    let body = fcm_field_error("message.android.ttl");
    driven.provider.answer(move |_, _| Reply::answer(400, body.clone()));
    let outcomes = driven.deliver(5000).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Failed(FailReason::Refused)));
    let asked = driven.provider.record().requests;
    assert!(asked <= 1100, "{asked} requests");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_in_this_machine_is_not_connected_to_without_permission() {
    for (allow, sent) in [("", 0), ("10.0.0.0/8", 0), ("127.0.0.0/8", 20)] {
        let authority = Authority::new();
        let server = PhoneServer::start(Face::WebPush, Some(&authority.local_server())).await;
        let driven = web_push(server, authority, allow);
        let outcomes = driven.deliver(20).await;
        let found = outcomes.iter().filter(|outcome| **outcome == Outcome::Sent).count();
        assert_eq!(found, sent, "{allow:?}: {:?}", numbers(&outcomes));
        let connections = driven.provider.record().connections;
        assert_eq!(connections > 0, sent > 0, "{allow:?}");
    }
}
