//! The driver of all providers that are reached over HTTP: FCM, APNs, Web Push and webhooks.
//!
//! What a request looks like and what an answer means is in `push_providers`; connections and the rule
//! where requests may go are in `push_outbound`. The driver brings both together:
//!
//! - `accounts`: the credentials of apps, cached for a few seconds
//! - `bearers`: authorizations, made once for all requests and renewed ahead of time
//! - `delivery`: a batch of devices, as requests that are under way together
//! - `answers`: what the answer to a request, or the lack of one, leads to
//! - `way`: the connections to one server, with its circuit
//! - `window`: how many requests of one app are under way at a time
//! - `quota`: the requests that a provider takes from an account, counted over all workers
//! - `circuit`: stops asking a provider that fails
//! - `health`: says if the provider itself fails
//! - `counts`: what providers answered, for metrics
//! - `verdicts`: what a provider's answer means for a device, its message and its account
//! - `stored`: credentials and quotas, from the index
//! - `trial`: one request by hand, which shows if an account works
//! - `settings`: the flags

mod accounts;
mod answers;
mod bearers;
mod circuit;
mod counts;
mod delivery;
mod health;
mod quota;
mod settings;
mod stored;
mod trial;
mod verdicts;
mod way;
mod window;

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize},
    },
    time::Duration,
};

use async_trait::async_trait;
use push_model::{device::Target, ids::MessageId, ledger::FailReason, time::UnixMillis};
use push_outbound::{Exchange, Outbound, PoolKey};
use push_providers::{
    Authorization, Bearer, Provider,
    content::Content,
    exchange::{Answer, Destination},
    verdict::AccountFault,
};
use quick_cache::sync::Cache;
use ring::rand::SystemRandom;
use tokio::time::Instant;
use tracing::warn;

use self::{
    accounts::{Account, Accounts, Identity, Unusable},
    counts::Counts,
    delivery::BatchDelivery,
    health::ProviderHealth,
    verdicts::away,
    way::Way,
};
pub use self::{
    accounts::{Credentials, NoCredential, SharedQuota},
    quota::Quotas,
    settings::{HttpArgs, HttpSettings, HttpTuning},
    stored::StoredProviders,
    trial::{TestMessage, Trial, Tried},
    verdicts::outcome_of,
};
use crate::{
    contract::{Outgoing, Transport},
    outcome::Outcome,
    sending::{Proceed, Sending},
};

/// The most messages whose form for the provider is kept between batches.
const KEPT_FORMS: usize = 64;

/// A message, the number of the account that sends it, and the language of its texts.
type FormKey = (MessageId, u64, Option<Box<str>>);

/// The transport of one provider.
pub struct HttpTransport<P: Provider> {
    shared: Arc<Shared<P>>,
    accounts: Arc<Accounts<P>>,
    /// The forms of the last messages, by message and number of the account. A message of which a form
    /// cannot be made is kept as `None`.
    forms: Cache<FormKey, Option<Arc<Form<P>>>>,
}

/// A message in the form of a provider, for all its batches.
struct Form<P: Provider> {
    message: P::Message,
    /// Set when the provider refused the message itself: no other device is sent it.
    is_refused: AtomicBool,
}

/// What all deliveries of a transport share.
struct Shared<P> {
    outbound: Arc<Outbound>,
    settings: HttpSettings,
    counts: Counts,
    health: Arc<ProviderHealth>,
    random: SystemRandom,
    provider: std::marker::PhantomData<fn() -> P>,
}

impl<P: Provider> HttpTransport<P> {
    /// A transport that has no connection yet.
    pub fn new(
        outbound: Arc<Outbound>,
        credentials: Arc<dyn Credentials>,
        quota: Option<SharedQuota>,
        settings: HttpSettings,
    ) -> Self {
        let accounts = Arc::new(Accounts::new(credentials, settings.window, quota));
        let counts = Counts::default();
        let (random, provider) = (SystemRandom::new(), std::marker::PhantomData);
        let shared = Arc::new(Shared {
            outbound,
            settings,
            counts,
            health: Arc::default(),
            random,
            provider,
        });
        Self { shared, accounts, forms: Cache::new(KEPT_FORMS) }
    }

    /// Returns the form of a message for this provider; `None` if the provider cannot carry it.
    fn form(&self, message: &Outgoing, account: &Account<P>) -> Option<Arc<Form<P>>> {
        // A form depends on the account as well, which may be replaced while a broadcast goes on.
        let key = (message.message_id, account.number, message.language.clone());
        if let Some(form) = self.forms.get(&key) {
            return form;
        }
        let content = Content::read(&message.payload);
        let form = content.ok().and_then(|content| {
            let message = P::message(&content, Some(&account.account)).ok()?;
            Some(Arc::new(Form { message, is_refused: AtomicBool::new(false) }))
        });
        self.forms.insert(key, form.clone());
        form
    }
}

impl<P: Provider> Shared<P> {
    /// Returns the authorization of an account for an audience.
    async fn bearer(
        &self,
        account: &Account<P>,
        audience: &str,
        now: UnixMillis,
    ) -> Result<Bearer, AccountFault> {
        let renew = async || match P::authorize(&account.account, audience, now, &self.random) {
            Err(error) => {
                warn!(
                    runbook = "a-transport-cannot-send",
                    transport = P::KIND.name(),
                    %error,
                    "an account cannot sign"
                );
                Err(AccountFault::Stop { code: "unusable key" })
            }
            Ok(Authorization::Made(bearer)) => Ok(bearer),
            Ok(Authorization::Exchange(request)) => {
                self.fetch(&account.identity, request, now).await
            }
        };
        account.identity.bearers.of(audience, now, renew).await
    }

    /// Gets an authorization from the service that issues it.
    async fn fetch(
        &self,
        identity: &Identity,
        request: push_providers::exchange::Request,
        now: UnixMillis,
    ) -> Result<Bearer, AccountFault> {
        let unavailable = AccountFault::Unavailable { wait: None };
        let way =
            self.way(identity, &request.to).ok_or(AccountFault::Stop { code: "token_uri" })?;
        let deadline = Instant::now() + self.settings.request_timeout;
        let problem = match way.send(request, deadline).await {
            Exchange::Answered(answer) => {
                let (status, headers) = (answer.status, &answer.headers);
                let read = Answer { status, headers, body: &answer.body, at: now };
                return P::authorized(&read, now).inspect_err(|_| way.without_bearer(&status));
            }
            Exchange::NotProcessed(why) => why.to_string(),
            Exchange::Unanswered(why) => why.to_string(),
        };
        way.without_bearer(&problem);
        Err(unavailable)
    }

    /// Returns the way to a server; `None` if its address can lead nowhere.
    fn way(&self, identity: &Identity, to: &Destination) -> Option<Arc<Way>> {
        let new = || self.new_way(identity, to).map(Arc::new).ok_or(());
        identity.ways.get_or_insert_with(to, new).ok()
    }

    fn new_way(&self, identity: &Identity, to: &Destination) -> Option<Way> {
        let origin = self.settings.server(to)?;
        let client = self.outbound.origin(origin, PoolKey(identity.name.clone()));
        let health = match to {
            Destination::Fcm | Destination::Apns { .. } => Some(self.health.clone()),
            Destination::Outside(_) => None,
        };
        Some(Way { client, circuit: Mutex::default(), transport: P::KIND.name(), health })
    }
}

#[async_trait]
impl<P: Provider> Transport for HttpTransport<P> {
    async fn deliver(
        &self,
        message: &Outgoing,
        targets: &[Target],
        sending: &Sending,
    ) -> Vec<Outcome> {
        let all = |outcome| vec![outcome; targets.len()];
        if message.lifetime.is_over(sending.now()) {
            return all(Outcome::Expired);
        }
        if let Proceed::Stop(reason) = sending.may_send_more() {
            return all(reason.outcome());
        }
        let account = match self.accounts.of(&message.app).await {
            Ok(account) => account,
            Err(Unusable::None) => return all(Outcome::Failed(FailReason::NoAccount)),
            Err(Unusable::Away) => return all(away()),
        };
        let Some(form) = self.form(message, &account) else {
            return all(Outcome::Failed(FailReason::TooLarge));
        };
        let delivery = BatchDelivery {
            shared: self.shared.clone(),
            accounts: self.accounts.clone(),
            account,
            message: message.clone(),
            form,
            targets: targets.to_vec(),
            sending: sending.clone(),
            hand_over_until: Instant::now() + self.shared.settings.delivery_timeout / 2,
            next: AtomicUsize::new(0),
        };
        delivery.run().await
    }

    async fn ready(&self) -> bool {
        !self.shared.health.is_failing(Instant::now())
    }

    fn answers(&self) -> Vec<(&'static str, &'static str, u64)> {
        self.shared.counts.all()
    }

    fn longest_silence(&self) -> Duration {
        self.shared.settings.request_timeout
    }

    async fn close(&self) {
        self.shared.outbound.close().await;
    }
}

impl<P: Provider> fmt::Debug for HttpTransport<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpTransport").field(&P::KIND.name()).finish()
    }
}
