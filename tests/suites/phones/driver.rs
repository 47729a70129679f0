//! The transports themselves, without the service around them: the outcome of each device of a batch.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use push_model::{
    app::AppKey,
    device::{Target, TransportKind},
    ids::{AudienceKind, MessageId},
    registration::RegistrationEpoch,
    time::UnixMillis,
};
use push_outbound::{Origin, OutboundSettings, Owner, Permission};
use push_providers::{
    Provider,
    by_kind::stored_token,
    webpush::{Credential, WebPush},
};
use push_tests::{certificates::Authority, phone_server::PhoneServer, stack::APP};
use push_transports::{
    Lifetime, Outcome, Outgoing, Sending, Transport as _,
    http::{Credentials, HttpSettings, HttpTransport, NoCredential},
};
use ring::rand::SystemRandom;
use serde_json::json;

use super::browser;

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
    let message = Outgoing { app, message_id, payload, localized: None, language: None, lifetime };
    let targets: Vec<_> = (0..devices)
        .map(|n| Target {
            client_id: format!("device-{n}").parse().unwrap(),
            transport: P::KIND,
            token: Some(token(n).into()),
            epoch: RegistrationEpoch(1),
            user_id: None,
            language: None,
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
