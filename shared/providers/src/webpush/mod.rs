//! Web Push (RFC 8030) to browsers, and UnifiedPush, which is Web Push to apps of phones.
//!
//! Every message is encrypted for its device with a new key: `encryption`. The app proves who it is with a
//! token for each push service: `vapid`. The rest is as at every provider.

mod account;
mod answer;
mod encryption;
mod message;
mod request;
#[cfg(test)]
mod tests;
mod token;
mod vapid;

use std::borrow::Cow;

use push_model::{app::AppKey, device::TransportKind, time::UnixMillis};
use ring::rand::SecureRandom;

pub use self::{
    account::{Account, Credential},
    message::Message,
    token::Token,
};
use crate::{
    Authorization, BadAccount, BadToken, Bearer, Delivery, Device, Provider, TooLarge,
    content::Content,
    exchange::{Answer, Request},
    verdict::Verdict,
};

/// Web Push and UnifiedPush.
#[derive(Debug, Clone, Copy)]
pub struct WebPush;

impl Provider for WebPush {
    const KIND: TransportKind = TransportKind::Webpush;
    const DEVICES_A_REQUEST: usize = 1;

    type Account = Account;
    type Token = Token;
    type Message = Message;

    fn account(credential: &[u8], random: &dyn SecureRandom) -> Result<Account, BadAccount> {
        let credential: Credential =
            serde_json::from_slice(credential).map_err(|_| BadAccount {
                field: "credential",
                problem: "must be JSON with private_key and subject".into(),
            })?;
        credential.check(random)
    }

    fn stored<'a>(text: &'a str, random: &dyn SecureRandom) -> Result<Cow<'a, str>, BadToken> {
        Token::registered(text, random).map(|token| Cow::Owned(token.stored()))
    }

    fn shown(stored: &str) -> Cow<'_, str> {
        match Token::read(stored) {
            Ok(token) => Cow::Owned(token.shown()),
            Err(_) => Cow::Borrowed(stored),
        }
    }

    fn token(stored: &str) -> Result<Token, BadToken> {
        Token::read(stored)
    }

    fn message(content: &Content<'_>, account: Option<&Account>) -> Result<Message, TooLarge> {
        Message::new(content, account)
    }

    fn audience(token: &Token) -> &str {
        token.origin()
    }

    fn identity(account: &Account, _: &AppKey) -> String {
        format!("{} {}", account.public_key(), account.subject())
    }

    fn authorize(
        account: &Account,
        audience: &str,
        now: UnixMillis,
        random: &dyn SecureRandom,
    ) -> Result<Authorization, BadAccount> {
        vapid::authorize(account, audience, now, random).map(Authorization::Made)
    }

    fn request(
        _: &Account,
        bearer: &Bearer,
        message: &Message,
        delivery: &Delivery<'_>,
        devices: &[Device<'_, Token>],
    ) -> Result<Request, Verdict> {
        match devices {
            [device] => request::request(bearer, message, delivery, device.token),
            _ => Err(Verdict::Unavailable { wait: None }),
        }
    }

    fn answer(answer: &Answer<'_>, devices: &[Device<'_, Token>]) -> Vec<Verdict> {
        vec![answer::verdict(answer); devices.len()]
    }
}
