//! A webhook: an app's own receiver, which passes messages on to what no other transport reaches. Requests
//! are signed as Standard Webhooks says. docs/reference/webhook.md is the contract for receivers.

mod account;
mod answer;
mod message;
mod request;
#[cfg(test)]
mod tests;
mod token;

use bytes::Bytes;
use push_model::{app::AppKey, device::TransportKind, time::UnixMillis};
use ring::rand::SecureRandom;

pub use self::{
    account::{Account, Credential, Previous},
    message::Message,
    token::Token,
};
use crate::{
    Authorization, BadAccount, BadToken, Bearer, Delivery, Device, Provider, TooLarge,
    content::Content,
    exchange::{Answer, Request},
    verdict::Verdict,
};

/// A webhook.
#[derive(Debug, Clone, Copy)]
pub struct Webhook;

impl Provider for Webhook {
    const KIND: TransportKind = TransportKind::Webhook;
    const DEVICES_A_REQUEST: usize = request::MAX_DEVICES;

    type Account = Account;
    type Token = Token;
    type Message = Message;

    fn account(credential: &[u8], _: &dyn SecureRandom) -> Result<Account, BadAccount> {
        let credential: Credential = serde_json::from_slice(credential).map_err(|_| {
            BadAccount { field: "credential", problem: "must be JSON with url and secret".into() }
        })?;
        credential.check()
    }

    fn token(stored: &str) -> Result<Token, BadToken> {
        Token::read(stored)
    }

    fn message(content: &Content<'_>, _: Option<&Account>) -> Result<Message, TooLarge> {
        Message::new(content)
    }

    /// Each app has its own receiver, although two may be at the same URL.
    fn identity(_: &Account, app: &AppKey) -> String {
        app.to_string()
    }

    /// Each request is signed by itself.
    fn authorize(
        _: &Account,
        _: &str,
        _: UnixMillis,
        _: &dyn SecureRandom,
    ) -> Result<Authorization, BadAccount> {
        let (renew_at, expires_at) = (UnixMillis::MAX, UnixMillis::MAX);
        Ok(Authorization::Made(Bearer { value: Bytes::new(), renew_at, expires_at }))
    }

    fn batch(message: &Message, devices: &[Device<'_, Token>]) -> usize {
        request::batch(message, devices)
    }

    fn request(
        account: &Account,
        _: &Bearer,
        message: &Message,
        delivery: &Delivery<'_>,
        devices: &[Device<'_, Token>],
    ) -> Result<Request, Verdict> {
        request::request(account, message, delivery, devices)
    }

    fn probe(account: &Account, _: &Bearer, now: UnixMillis) -> Option<Request> {
        request::probe(account, now).ok()
    }

    fn probed(answer: &Answer<'_>) -> Result<(), Verdict> {
        answer::refusal(answer).map_or(Ok(()), Err)
    }

    fn answer(answer: &Answer<'_>, devices: &[Device<'_, Token>]) -> Vec<Verdict> {
        answer::verdicts(answer, devices)
    }
}
