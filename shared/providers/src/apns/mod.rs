//! Apple Push Notification service: its HTTP/2 API, with a provider token.

mod account;
mod answer;
mod message;
mod request;
mod token;

use std::borrow::Cow;

use push_model::{app::AppKey, device::TransportKind, time::UnixMillis};
use ring::rand::SecureRandom;

pub use self::{account::Account, message::Message, token::Token};
use crate::{
    Authorization, BadAccount, BadToken, Bearer, Delivery, Device, Provider, TooLarge,
    content::Content,
    exchange::{Answer, Request},
    verdict::Verdict,
};

/// The provider of [`TransportKind::Apns`].
#[derive(Debug)]
pub struct Apns;

impl Provider for Apns {
    const KIND: TransportKind = TransportKind::Apns;
    const DEVICES_A_REQUEST: usize = 1;

    type Account = Account;
    type Token = Token;
    type Message = Message;

    fn account(credential: &[u8], random: &dyn SecureRandom) -> Result<Account, BadAccount> {
        Account::read(credential, random)
    }

    fn stored<'a>(text: &'a str, _: &dyn SecureRandom) -> Result<Cow<'a, str>, BadToken> {
        Token::stored(text)
    }

    fn token(stored: &str) -> Result<Token, BadToken> {
        Token::read(stored)
    }

    fn message(content: &Content<'_>, _: Option<&Account>) -> Result<Message, TooLarge> {
        Message::build(&content.payload)
    }

    fn identity(account: &Account, _: &AppKey) -> String {
        account.identity.clone()
    }

    fn authorize(
        account: &Account,
        _: &str,
        now: UnixMillis,
        random: &dyn SecureRandom,
    ) -> Result<Authorization, BadAccount> {
        account.provider_token(now, random).map(Authorization::Made)
    }

    fn request(
        account: &Account,
        bearer: &Bearer,
        message: &Message,
        delivery: &Delivery<'_>,
        devices: &[Device<'_, Token>],
    ) -> Result<Request, Verdict> {
        request::send(account, bearer, message, delivery, devices)
    }

    fn probe(account: &Account, bearer: &Bearer, _: UnixMillis) -> Option<Request> {
        request::probe(account, bearer).ok()
    }

    fn probed(answer: &Answer<'_>) -> Result<(), Verdict> {
        answer::probed(answer)
    }

    fn answer(answer: &Answer<'_>, devices: &[Device<'_, Token>]) -> Vec<Verdict> {
        vec![answer::verdict(answer); devices.len()]
    }
}
