//! Firebase Cloud Messaging: its HTTP v1 API, with a service account.
//!
//! A message has the fields of Android and `data`. It has none for iOS, whose devices use APNs, and none for
//! browsers, which use Web Push.

mod account;
mod answer;
mod message;
mod request;
mod token;

use push_model::{app::AppKey, device::TransportKind, time::UnixMillis};
use ring::rand::SecureRandom;

pub use self::{account::Account, message::Message, token::Token};
use crate::{
    Authorization, BadAccount, BadToken, Bearer, Delivery, Device, Provider, TooLarge,
    content::Content,
    exchange::{Answer, Request},
    verdict::{AccountFault, Verdict},
};

/// The provider of [`TransportKind::Fcm`].
#[derive(Debug)]
pub struct Fcm;

impl Provider for Fcm {
    const KIND: TransportKind = TransportKind::Fcm;
    const DEVICES_A_REQUEST: usize = 1;

    type Account = Account;
    type Token = Token;
    type Message = Message;

    fn account(credential: &[u8], _: &dyn SecureRandom) -> Result<Account, BadAccount> {
        Account::read(credential)
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

    /// A project may have several keys.
    fn quota_of(account: &Account, _: &AppKey) -> String {
        account.project.clone()
    }

    fn authorize(
        account: &Account,
        _: &str,
        now: UnixMillis,
        random: &dyn SecureRandom,
    ) -> Result<Authorization, BadAccount> {
        request::exchange(account, now, random).map(Authorization::Exchange)
    }

    fn authorized(answer: &Answer<'_>, now: UnixMillis) -> Result<Bearer, AccountFault> {
        answer::bearer(answer, now)
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
