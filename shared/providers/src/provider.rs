//! The contract of a provider.

use std::borrow::Cow;

use bytes::Bytes;
use push_model::{app::AppKey, device::TransportKind, ids::MessageId, time::UnixMillis};
use ring::rand::SecureRandom;

use crate::{
    content::Content,
    exchange::{Answer, Request},
    verdict::{AccountFault, Verdict},
};

/// A service that takes messages for devices over HTTP.
///
/// Everything that changes is passed in: the time, random bytes, and the answers of the service.
pub trait Provider: Send + Sync + 'static {
    /// The transport of its devices.
    const KIND: TransportKind;

    /// The most devices in one request.
    const DEVICES_A_REQUEST: usize;

    /// The credential of an app, read and checked.
    type Account: Send + Sync + 'static;

    /// The address of a device, read and checked.
    type Token: Send + Sync + 'static;

    /// A message as this provider takes it, built once for all its devices.
    type Message: Send + Sync + 'static;

    /// Reads a credential in the form in which it is sealed and stored: JSON.
    ///
    /// # Errors
    /// If it cannot work; the error names the field and never shows a secret.
    fn account(credential: &[u8], random: &dyn SecureRandom) -> Result<Self::Account, BadAccount>;

    /// Checks the `token` of a registration and returns the form in which the index keeps it. The form is
    /// the same for every spelling of an address, and has no control characters.
    ///
    /// # Errors
    /// If no device of this provider can have it; the error says what is expected.
    fn stored<'a>(text: &'a str, random: &dyn SecureRandom) -> Result<Cow<'a, str>, BadToken> {
        let _ = random;
        Self::token(text)?;
        Ok(Cow::Borrowed(text))
    }

    /// Writes a stored address as a device registers it, for records and exports. A damaged one comes back
    /// as it is.
    fn shown(stored: &str) -> Cow<'_, str> {
        Cow::Borrowed(stored)
    }

    /// Reads the form of [`Provider::stored`]. The worker calls it for each delivery, so it repeats no check
    /// that the provider or the encryption makes anyway.
    ///
    /// # Errors
    /// If no device of this provider can have it; the error says what is expected.
    fn token(stored: &str) -> Result<Self::Token, BadToken>;

    /// Builds the form of a message. `account` is `None` at `ingest`, which may not read credentials and
    /// needs the size alone; then the result is the largest that any account could give.
    ///
    /// # Errors
    /// If this provider cannot carry it.
    fn message(
        content: &Content<'_>,
        account: Option<&Self::Account>,
    ) -> Result<Self::Message, TooLarge>;

    /// Names the group of devices that share one authorization: empty if all devices of an account do. For
    /// Web Push it is the origin of the endpoint (RFC 8292, section 2).
    fn audience(token: &Self::Token) -> &str {
        let _ = token;
        ""
    }

    /// Names the account across apps: apps whose accounts have the same name share authorizations and
    /// connections, because the provider counts them as one (an APNs team, an FCM project).
    fn identity(account: &Self::Account, app: &AppKey) -> String;

    /// Names what the provider counts requests for: accounts with the same name share a quota. It is the
    /// [identity](Self::identity), unless the provider counts several of them as one.
    fn quota_of(account: &Self::Account, app: &AppKey) -> String {
        Self::identity(account, app)
    }

    /// Makes an authorization for an audience, or the request that gets one.
    ///
    /// # Errors
    /// If the key cannot sign.
    fn authorize(
        account: &Self::Account,
        audience: &str,
        now: UnixMillis,
        random: &dyn SecureRandom,
    ) -> Result<Authorization, BadAccount>;

    /// Reads the answer to the request of [`Authorization::Exchange`], for providers that have one.
    ///
    /// # Errors
    /// If it holds no authorization.
    fn authorized(answer: &Answer<'_>, now: UnixMillis) -> Result<Bearer, AccountFault> {
        let _ = (answer, now);
        Err(AccountFault::Stop { code: "no_exchange" })
    }

    /// Returns the number of these devices, from the first on, that one request can carry: at least 1 if
    /// there are any.
    fn batch(message: &Self::Message, devices: &[Device<'_, Self::Token>]) -> usize {
        let _ = message;
        devices.len().min(Self::DEVICES_A_REQUEST)
    }

    /// Writes the request that sends a message to these devices, at most [`Provider::batch`] of them.
    ///
    /// # Errors
    /// If no request can be made for them, with what that means for them.
    fn request(
        account: &Self::Account,
        bearer: &Bearer,
        message: &Self::Message,
        delivery: &Delivery<'_>,
        devices: &[Device<'_, Self::Token>],
    ) -> Result<Request, Verdict>;

    /// Writes a request that shows if the account works and that no device receives; `None` if the provider
    /// has none.
    fn probe(account: &Self::Account, bearer: &Bearer, now: UnixMillis) -> Option<Request> {
        let _ = (account, bearer, now);
        None
    }

    /// Reads the answer to [`Provider::probe`].
    ///
    /// # Errors
    /// If it does not show that the account works, with its meaning.
    fn probed(answer: &Answer<'_>) -> Result<(), Verdict> {
        let wait = answer.retry_after();
        Err(Verdict::Unavailable { wait })
    }

    /// Reads the answer to a request for these devices: one verdict for each, in their order.
    fn answer(answer: &Answer<'_>, devices: &[Device<'_, Self::Token>]) -> Vec<Verdict>;
}

/// The facts in a request beside its message.
#[derive(Debug, Clone, Copy)]
pub struct Delivery<'a> {
    /// The message.
    pub message_id: &'a MessageId,
    /// The time by the wall clock.
    pub now: UnixMillis,
    /// The last instant at which a device may get the message.
    pub expires_at: UnixMillis,
    /// True with a time to live of 0: the provider must not keep the message for a device that is away.
    pub now_or_never: bool,
    /// The source of random bytes.
    pub random: &'a dyn SecureRandom,
}

impl Delivery<'_> {
    /// Returns the whole seconds for which the provider may keep the message.
    pub fn seconds_left(&self) -> u64 {
        if self.now_or_never { 0 } else { self.expires_at.0.saturating_sub(self.now.0) / 1000 }
    }
}

/// A device of a request.
#[derive(Debug)]
pub struct Device<'a, T> {
    /// Its client id.
    pub client_id: &'a str,
    /// Its address.
    pub token: &'a T,
}

/// The proof that a request comes from the account. Its `Debug` form shows the times alone.
#[derive(Clone)]
pub struct Bearer {
    /// The authorization that requests carry, in the form of the provider; empty if each request is
    /// signed by itself.
    pub value: Bytes,
    /// From this time on a new one is to be made.
    pub renew_at: UnixMillis,
    /// From this time on the provider refuses it.
    pub expires_at: UnixMillis,
}

/// The way to an authorization.
#[derive(Debug)]
pub enum Authorization {
    /// It was made from the account's key.
    Made(Bearer),
    /// It is the answer to this request ([`Provider::authorized`]).
    Exchange(Request),
}

/// A credential that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct BadAccount {
    /// The field that is wrong.
    pub field: &'static str,
    /// The form that it must have.
    pub problem: String,
}

/// A `token` that no device of the provider can have. The text says what is expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{expected}")]
pub struct BadToken {
    /// The expected form, to follow the word "token".
    pub expected: &'static str,
}

/// A message that a provider cannot carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} carries {limit} bytes, and this is {} more", kind.name(), size.saturating_sub(*limit))]
pub struct TooLarge {
    /// The provider's transport.
    pub kind: TransportKind,
    /// The bytes that the message has in the form of the provider.
    pub size: usize,
    /// The most bytes that the provider takes.
    pub limit: usize,
}

impl std::fmt::Debug for Bearer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bearer")
            .field("renew_at", &self.renew_at)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}
