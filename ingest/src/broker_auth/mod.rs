//! The questions of MQTT brokers that ask before they let a client connect, subscribe or publish.
//!
//! | path under `/v1/broker/` | who asks | a refusal is |
//! |---|---|---|
//! | `emqx/authenticate`, `emqx/authorize` | EMQX 5 and newer | 200 with `"result":"deny"` |
//! | `rmqtt/auth`, `rmqtt/acl` | RMQTT's `rmqtt-auth-http` | 200 with `"result":"deny"` |
//! | `mosquitto/user`, `superuser`, `acl` | `mosquitto-go-auth` and its forks | 403 |
//!
//! The forms exclude each other: for EMQX and RMQTT any status but 200 means that the question is not
//! answered, and the next check of the broker decides, which may be one that lets everyone in. For
//! `mosquitto-go-auth` every 2xx lets the client in. So each broker has paths of its own, and every failure
//! here, from a missing setting to an unavailable index, is a refusal in the form of the broker that asks.
//!
//! Only a broker may ask: it proves with the secret of the settings that it is one (`caller`),
//! before anything else is looked at. Without the secret every answer is the refusal, so an unauthenticated client
//! learns nothing here, and tries no token that it could not try at the broker.
//!
//! - `fields`: what the broker says of its client
//! - `decision`: who may connect, and what each may do
//! - `failed_logins`: how many are refused, for the log
//! - `emqx`, `rmqtt`, `mosquitto`: the form of each broker

mod caller;
mod decision;
mod emqx;
mod failed_logins;
mod fields;
mod mosquitto;
mod rmqtt;

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use hyper::body::Body;
use push_credentials::DeviceCredentials;
use push_model::time::UnixMillis;

pub(crate) use self::failed_logins::BrokerLogins;
use self::{
    decision::{Access, Client, Refusal},
    fields::Fields,
};
use crate::{
    apps::Logins,
    body::{AppMemory, BodyError, Purpose, RequestBody, Reservation, TimeLimits},
    head::Head,
    index_client::IndexClient,
    metrics::Metrics,
    reply::Reply,
    route::{Broker, BrokerQuestion},
    settings::BrokerAuthSettings,
};

/// The largest body of a question, in bytes: the longest token, ids and topic, encoded in a form,
/// take less than half of it.
const MAX_QUESTION: usize = 16 * 1024;

/// Answers MQTT brokers.
#[derive(Debug)]
pub(crate) struct BrokerAuth {
    /// The secrets of brokers and workers; no broker may ask if there are none.
    pub(crate) settings: Option<BrokerAuthSettings>,
    /// Verifies the tokens of devices.
    pub(crate) credentials: Option<DeviceCredentials>,
    pub(crate) logins: Arc<Logins>,
    pub(crate) index: Arc<IndexClient>,
    /// The memory for questions: as much as one app may have.
    pub(crate) memory: Arc<AppMemory>,
    pub(crate) body_time: TimeLimits,
    pub(crate) failed_logins: Arc<BrokerLogins>,
    pub(crate) metrics: Arc<Metrics>,
}

/// The answer to a question.
enum Answer {
    /// The client may connect.
    Connect(Client),
    /// It may do what was asked.
    Allow,
    /// It is no superuser, which no client is. The broker asks this about each of them, so it is not
    /// counted as a refusal.
    NoSuperuser,
    /// It may not.
    Refuse(Refusal),
}

impl BrokerAuth {
    /// Returns the memory for the questions of brokers, if a request has their secret.
    pub(crate) fn memory_of(&self, head: &Head<'_>) -> Option<Arc<AppMemory>> {
        let settings = self.settings.as_ref()?;
        caller::check(head, &settings.secret).is_ok().then(|| Arc::clone(&self.memory))
    }

    /// Answers a broker.
    pub(crate) async fn answer(
        &self,
        broker: Broker,
        question: BrokerQuestion,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin>,
    ) -> Reply {
        let decided = self.decide(broker, question, head, body).await;
        let answer = decided.unwrap_or_else(|refusal| {
            tracing::debug!(?broker, ?question, %refusal, "a client of the MQTT broker is refused");
            self.metrics.broker_refusals.count(broker, refusal.reason());
            self.failed_logins.refused(refusal.reason(), head.peer);
            Answer::Refuse(refusal)
        });
        match broker {
            Broker::Emqx => emqx::reply(&answer),
            Broker::Rmqtt => rmqtt::reply(&answer),
            Broker::Mosquitto => mosquitto::reply(&answer),
        }
    }

    async fn decide(
        &self,
        broker: Broker,
        question: BrokerQuestion,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin>,
    ) -> Result<Answer, Refusal> {
        let settings = self.settings.as_ref().ok_or(Refusal::Off)?;
        caller::check(head, &settings.secret)?;
        if head.method != Method::POST {
            return Err(Refusal::Question);
        }
        let fields = self.read_question(head, body).await?;
        match question {
            BrokerQuestion::Connect => {
                self.log_in(settings, &fields, UnixMillis::now()).await.map(Answer::Connect)
            }
            BrokerQuestion::Superuser => Ok(Answer::NoSuperuser),
            BrokerQuestion::Access => {
                let topic = fields.get("topic");
                let access = match broker {
                    Broker::Emqx => emqx::access(&fields, topic),
                    Broker::Rmqtt => rmqtt::access(&fields, topic),
                    Broker::Mosquitto => mosquitto::access(&fields, topic),
                };
                let access: Access<'_> = access.ok_or(Refusal::Question)?;
                decision::allow(&fields, access).map(|()| Answer::Allow)
            }
        }
    }

    async fn read_question(
        &self,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin>,
    ) -> Result<Fields, Refusal> {
        let mut memory = Reservation::empty(&self.memory, Purpose::Single);
        let read = body.read(MAX_QUESTION, self.body_time, &mut memory).await;
        let bytes = read.map_err(|_| Refusal::Question)?;
        Fields::read(head, &bytes).ok_or(Refusal::Question)
    }
}
