//! Trying an account by hand: one request, and what came of it. It goes past the caches, windows and circuits of
//! deliveries, so it says what is true now.

use push_model::{app::AppKey, device::TransportKind, ids::MessageId, time::UnixMillis};
use push_outbound::{Client, Exchange, NotProcessed, Outbound, PoolKey, Unanswered};
use push_providers::{
    Authorization, BadAccount, BadToken, Bearer, Delivery, Device, Provider,
    content::Content,
    exchange::{Answer, Request},
    verdict::{AccountFault, Verdict},
    with_provider,
};
use ring::rand::SystemRandom;
use tokio::time::Instant;

use super::{settings::HttpSettings, way};

/// The most times that a request is sent again because it was certainly not processed.
const SENT_AGAIN: u32 = 2;

/// A place from which accounts are tried.
#[derive(Debug, Clone, Copy)]
pub struct Trial<'a> {
    /// The connections.
    pub outbound: &'a Outbound,
    /// Where the providers are.
    pub settings: &'a HttpSettings,
    /// The time by the wall clock.
    pub now: UnixMillis,
}

/// A message for one device.
#[derive(Debug, Clone, Copy)]
pub struct TestMessage<'a> {
    /// The id of the message.
    pub message_id: &'a MessageId,
    /// What the device receives.
    pub payload: &'a [u8],
    /// The last instant at which it may.
    pub expires_at: UnixMillis,
    /// The device.
    pub client_id: &'a str,
    /// Its address, as the index keeps it.
    pub token: &'a str,
}

/// What came of a trial.
#[derive(Debug, Clone, PartialEq)]
pub enum Tried {
    /// The provider accepts the account.
    Accepted {
        /// The status of its answer.
        status: u16,
    },
    /// The provider answered something else, or answered for the device.
    Answered {
        /// The status of its answer.
        status: u16,
        /// The meaning.
        verdict: Verdict,
    },
    /// The service of access tokens gave none.
    NoAuthorization {
        /// The origin of the service.
        server: String,
        /// The status of its answer.
        status: u16,
        /// The meaning.
        fault: AccountFault,
    },
    /// The request was not sent.
    NotSent {
        /// Its server.
        server: String,
        /// Why.
        why: NotProcessed,
    },
    /// The request was sent, and no answer came.
    Unanswered {
        /// Its server.
        server: String,
        /// Why.
        why: Unanswered,
    },
    /// The credential cannot work.
    BadAccount(BadAccount),
    /// The address is none of the provider's.
    BadToken(BadToken),
    /// No request can be made for the device.
    Unsendable(Verdict),
    /// The credential can sign, and the provider has no request that shows more without a device.
    NothingToAsk,
}

impl Trial<'_> {
    /// Tries the credential of an app: with a message to a device, or with a request that no device receives.
    pub async fn run(
        &self,
        app: &AppKey,
        kind: TransportKind,
        credential: &[u8],
        message: Option<TestMessage<'_>>,
    ) -> Tried {
        let tried = with_provider!(kind,
            P => self.over::<P>(app, credential, message).await,
            else Ok(Tried::NothingToAsk),
        );
        tried.unwrap_or_else(|failed| failed)
    }

    async fn over<P: Provider>(
        &self,
        app: &AppKey,
        credential: &[u8],
        message: Option<TestMessage<'_>>,
    ) -> Result<Tried, Tried> {
        let random = SystemRandom::new();
        let account = P::account(credential, &random).map_err(Tried::BadAccount)?;
        let key = PoolKey(P::identity(&account, app));
        let token = message.map(|message| P::token(message.token)).transpose();
        let token = token.map_err(Tried::BadToken)?;
        let audience = token.as_ref().map_or("", P::audience);
        let bearer = self.bearer::<P>(&account, &key, audience, &random).await?;
        let (Some(message), Some(token)) = (message, &token) else {
            let Some(request) = P::probe(&account, &bearer, self.now) else {
                return Ok(Tried::NothingToAsk);
            };
            let read = |answer: &Answer<'_>| P::probed(answer).err();
            return Ok(match self.ask(request, &key, read).await? {
                (status, None) => Tried::Accepted { status },
                (status, Some(verdict)) => Tried::Answered { status, verdict },
            });
        };
        let devices = [Device { client_id: message.client_id, token }];
        let request = self.request::<P>(&account, &bearer, &message, &devices, &random);
        let request = request.map_err(Tried::Unsendable)?;
        let read = |answer: &Answer<'_>| P::answer(answer, &devices).pop();
        let (status, verdict) = self.ask(request, &key, read).await?;
        let verdict = verdict.unwrap_or(Verdict::Unavailable { wait: None });
        Ok(Tried::Answered { status, verdict })
    }

    async fn bearer<P: Provider>(
        &self,
        account: &P::Account,
        key: &PoolKey,
        audience: &str,
        random: &SystemRandom,
    ) -> Result<Bearer, Tried> {
        let authorization = P::authorize(account, audience, self.now, random);
        let request = match authorization.map_err(Tried::BadAccount)? {
            Authorization::Made(bearer) => return Ok(bearer),
            Authorization::Exchange(request) => request,
        };
        let client = self.client(&request, key)?;
        let server = client.origin().to_string();
        let read = |answer: &Answer<'_>| (answer.status.as_u16(), P::authorized(answer, self.now));
        let (status, bearer) = self.exchange(&client, request, read).await?;
        bearer.map_err(|fault| Tried::NoAuthorization { server, status, fault })
    }

    fn request<P: Provider>(
        &self,
        account: &P::Account,
        bearer: &Bearer,
        message: &TestMessage<'_>,
        devices: &[Device<'_, P::Token>],
        random: &SystemRandom,
    ) -> Result<Request, Verdict> {
        let unusable = Verdict::MessageRefused { code: "too_large" };
        let content = Content::read(message.payload).map_err(|_| unusable)?;
        let form = P::message(&content, Some(account)).map_err(|_| unusable)?;
        let delivery = Delivery {
            message_id: message.message_id,
            now: self.now,
            expires_at: message.expires_at,
            now_or_never: false,
            random,
        };
        P::request(account, bearer, &form, &delivery, devices)
    }

    fn client(&self, request: &Request, key: &PoolKey) -> Result<Client, Tried> {
        let origin = self.settings.server(&request.to).ok_or_else(|| Tried::NotSent {
            server: "the URL".to_owned(),
            why: NotProcessed::Unsendable,
        })?;
        Ok(self.outbound.origin(origin, key.clone()))
    }

    /// Sends a request to a provider, and once more if it wants a new connection. Returns the status of the
    /// answer, and its meaning as `read` finds it.
    async fn ask(
        &self,
        request: Request,
        key: &PoolKey,
        read: impl Fn(&Answer<'_>) -> Option<Verdict>,
    ) -> Result<(u16, Option<Verdict>), Tried> {
        let client = self.client(&request, key)?;
        let read = |answer: &Answer<'_>| (answer.status.as_u16(), read(answer));
        match self.exchange(&client, request.clone(), read).await? {
            (_, Some(Verdict::Reconnect)) => {
                client.renew();
                self.exchange(&client, request, read).await
            }
            answered => Ok(answered),
        }
    }

    async fn exchange<T>(
        &self,
        client: &Client,
        request: Request,
        read: impl Fn(&Answer<'_>) -> T,
    ) -> Result<T, Tried> {
        let server = || client.origin().to_string();
        let deadline = Instant::now() + self.settings.request_timeout;
        let mut again = 0;
        loop {
            match way::send(client, request.clone(), deadline).await {
                Exchange::Answered(answer) => {
                    let (status, headers) = (answer.status, &answer.headers);
                    return Ok(read(&Answer { status, headers, body: &answer.body, at: self.now }));
                }
                Exchange::NotProcessed(
                    NotProcessed::Refused | NotProcessed::GoingAway | NotProcessed::Lost,
                ) if again < SENT_AGAIN => again += 1,
                Exchange::NotProcessed(why) => {
                    return Err(Tried::NotSent { server: server(), why });
                }
                Exchange::Unanswered(why) => {
                    return Err(Tried::Unanswered { server: server(), why });
                }
            }
        }
    }
}

impl Tried {
    /// Returns the provider's code, or ours.
    pub fn code(&self) -> Option<&'static str> {
        match self {
            Self::Answered { verdict, .. } | Self::Unsendable(verdict) => verdict.code(),
            Self::NoAuthorization { fault, .. } => fault.code(),
            Self::NotSent { why: NotProcessed::Unreachable { error, .. }, .. }
                if error.is_forbidden() =>
            {
                Some("forbidden_address")
            }
            _ => None,
        }
    }
}
