//! One connection on which a program watches for policies.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt as _;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, Consumer, ErrorKind, ExchangeKind,
    message::Delivery,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
        ConfirmSelectOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueDeclareOptions,
        QueueDeleteOptions,
    },
    protocol::{AMQPErrorKind, AMQPSoftError},
    types::{FieldTable, ShortString},
};
use tokio::{sync::watch, time::interval};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Findings, PERIOD, PROBED, PolicyKey};
use crate::{
    Lane,
    amqp::{
        connection::Dialer,
        dead_letters::dropped_from,
        error::{AmqpError, within},
        topology::{Address, Argument, declare, quorum, ready_count, table},
    },
};

/// How many dropped messages a program restores at once.
const PREFETCH: u16 = 32;
/// How long a dropped message waits before it is in its lane again, so that it does not run in
/// circles.
const RESTORE_AFTER: Duration = Duration::from_secs(8);
/// How long the probes of a program that died are kept, in milliseconds.
const PROBES_EXPIRE: i32 = 600_000;
/// How long a notice is believed that this program finds no reason for.
const NOTICE: Duration = Duration::from_secs(30);
const PERSISTENT: u8 = 2;

pub(super) struct Session {
    dialer: Dialer,
    connection: Connection,
    /// For what was dropped, and for the probes.
    channel: Channel,
    dropped: Consumer,
    /// The names of the probes: the queue with messages, and the unused one.
    probes: [String; 2],
    /// When each message was sent to the first probe that may still be there.
    sent: VecDeque<Instant>,
    /// When the second was declared.
    idle_since: Instant,
    /// Since when each notice is posted, as far as this program knows, or when it last posted it.
    posted: BTreeMap<PolicyKey, Instant>,
}

impl Session {
    pub(super) async fn open(dialer: &Dialer) -> Result<Self, AmqpError> {
        let bound = dialer.settings.request_timeout;
        let link = dialer.open("policies").await?;
        let channel = link.channel;
        within(bound, channel.confirm_select(ConfirmSelectOptions::default())).await?;
        within(bound, channel.basic_qos(PREFETCH, BasicQosOptions::default())).await?;
        let consume = channel.basic_consume(
            dialer.names.dropped().into(),
            ShortString::default(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let dropped = within(bound, consume).await?;
        let name = Uuid::now_v7().simple().to_string();
        let probes = ["messages", "idle"].map(|what| dialer.names.probe(what, &name));
        let session = Self {
            dialer: dialer.clone(),
            connection: link.connection,
            channel,
            dropped,
            probes,
            sent: VecDeque::new(),
            idle_since: Instant::now(),
            posted: BTreeMap::new(),
        };
        for probe in &session.probes {
            session.declare_probe(probe).await?;
        }
        Ok(session)
    }

    /// Watches until `closing`.
    pub(super) async fn run(
        &mut self,
        findings: &mut Findings,
        announce: &watch::Sender<Option<Arc<str>>>,
        closing: &CancellationToken,
    ) -> Result<(), AmqpError> {
        let mut ticks = interval(PERIOD);
        loop {
            tokio::select! {
                biased;
                () = closing.cancelled() => {
                    self.close().await;
                    return Ok(());
                }
                _ = ticks.tick() => self.look(findings).await?,
                dropped = self.dropped.next() => {
                    let dropped = dropped.ok_or(AmqpError::Cancelled)??;
                    self.restore(dropped, findings).await?;
                }
            }
            self.publish_findings(findings, announce).await?;
        }
    }

    fn bound(&self) -> Duration {
        self.dialer.settings.request_timeout
    }

    async fn declare_probe(&self, name: &str) -> Result<(), AmqpError> {
        let mut arguments = quorum();
        arguments.push(("x-expires", Argument::Int(PROBES_EXPIRE)));
        let options = QueueDeclareOptions::durable();
        let declared = self.channel.queue_declare(name.into(), options, table(&arguments));
        within(self.bound(), declared).await.map(drop)
    }

    /// Looks at the probes and at the service's queues, and prepares the next look.
    async fn look(&mut self, findings: &mut Findings) -> Result<(), AmqpError> {
        let now = Instant::now();
        findings.forget(now);
        let [messages, idle] = self.probes.clone();
        let found = self.count(&messages).await?;
        // By the time of the answer, because the server may have been slow.
        self.sent.retain(|sent| sent.elapsed() < PROBED);
        let expected = self.sent.len() as u64;
        match found {
            Some(count) if count >= expected => {}
            found => {
                let key = if found.is_none() { PolicyKey::Expires } else { PolicyKey::MessageTtl };
                findings.note(key, messages.clone(), now);
                self.sent.clear();
                self.declare_probe(&messages).await?;
            }
        }
        // Each message goes by itself after a while, so that there are few of them.
        let longer = (PROBED + PERIOD).as_millis().to_string();
        let properties = BasicProperties::default().with_expiration(longer.into());
        let to = Address { exchange: String::new(), routing_key: messages };
        self.publish(to, b"probe", properties).await?;
        self.sent.push_back(now);

        if now.saturating_duration_since(self.idle_since) >= PROBED {
            if self.count(&idle).await?.is_none() {
                findings.note(PolicyKey::Expires, idle.clone(), now);
            }
            // It must be a new one: what was looked at may count as used.
            self.delete(&idle).await;
            self.declare_probe(&idle).await?;
            self.idle_since = now;
        }
        self.keep_topology().await
    }

    /// Declares what was deleted.
    async fn keep_topology(&self) -> Result<(), AmqpError> {
        let names = &self.dialer.names;
        for queue in Lane::QUEUES.map(|lane| names.lane(lane)) {
            if self.count(&queue).await?.is_none() {
                tracing::warn!(queue, "a queue of the service was deleted, with what was in it");
                declare(&self.channel, &names.topology(), self.bound()).await?;
            }
        }
        Ok(())
    }

    /// The messages in a queue; none if there is no such queue.
    async fn count(&self, queue: &str) -> Result<Option<u64>, AmqpError> {
        // A queue that is not there closes the channel.
        let channel = within(self.bound(), self.connection.create_channel()).await?;
        match ready_count(&channel, queue, self.bound()).await {
            Ok(count) => {
                within(self.bound(), channel.close(200, "done".into())).await?;
                Ok(Some(count))
            }
            Err(AmqpError::Broken(error)) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Publishes a message again that the server dropped from one of the service's queues.
    async fn restore(&self, dropped: Delivery, findings: &mut Findings) -> Result<(), AmqpError> {
        let names = &self.dialer.names;
        let headers = dropped.properties.headers().clone().unwrap_or_default();
        let (queue, reason) = dropped_from(&headers);
        let key = match reason.as_str() {
            "expired" => Some(PolicyKey::MessageTtl),
            "maxlen" => Some(PolicyKey::MaxLength),
            _ => None,
        };
        if let Some(key) = key {
            findings.note(key, queue.clone(), Instant::now());
        }
        let to = match names.lane_of(&queue) {
            Some(lane) => names.delayed_address(lane, RESTORE_AFTER),
            None => names.dead_letter_address(),
        };
        let mut kept = FieldTable::default();
        for (name, value) in headers.inner() {
            let is_of_the_server =
                name.as_str().contains("death") || name.as_str() == "x-delivery-count";
            if !is_of_the_server {
                kept.insert(name.clone(), value.clone());
            }
        }
        let properties = dropped.properties.clone().with_headers(kept);
        self.publish(to, &dropped.data, properties.with_delivery_mode(PERSISTENT)).await?;
        within(self.bound(), dropped.ack(BasicAckOptions::default())).await.map(drop)
    }

    async fn publish(
        &self,
        to: Address,
        payload: &[u8],
        properties: BasicProperties,
    ) -> Result<(), AmqpError> {
        let publish = async {
            let options = BasicPublishOptions { mandatory: true, immediate: false };
            let (exchange, key) = (to.exchange.into(), to.routing_key.into());
            self.channel.basic_publish(exchange, key, options, payload, properties).await?.await
        };
        match within(self.dialer.settings.publish_timeout, publish).await? {
            Confirmation::Ack(None) => Ok(()),
            Confirmation::Ack(Some(_)) | Confirmation::NotRequested => Err(AmqpError::InDoubt),
            Confirmation::Nack(_) => Err(AmqpError::Nacked),
        }
    }

    /// Tells this program and the others what was found.
    async fn publish_findings(
        &mut self,
        findings: &Findings,
        announce: &watch::Sender<Option<Arc<str>>>,
    ) -> Result<(), AmqpError> {
        let found: Vec<PolicyKey> = findings.keys().collect();
        let mut reason = findings.reason();
        for key in PolicyKey::ALL {
            let notice = self.dialer.names.policy_notice(key.name());
            if found.contains(&key) {
                self.post(notice).await?;
                self.posted.insert(key, Instant::now());
                continue;
            }
            let channel = within(self.bound(), self.connection.create_channel()).await?;
            if !is_posted(&channel, &notice, self.bound()).await {
                self.posted.remove(&key);
                continue;
            }
            // A program that still finds it posts it again soon.
            let since = *self.posted.entry(key).or_insert_with(Instant::now);
            if since.elapsed() > NOTICE {
                self.posted.remove(&key);
                let options = ExchangeDeleteOptions::default();
                let delete = self.channel.exchange_delete(notice.into(), options);
                within(self.bound(), delete).await?;
            } else {
                reason.get_or_insert_with(|| super::reason(key, None));
            }
        }
        let was = announce.borrow().clone();
        if was != reason {
            match &reason {
                Some(reason) => tracing::error!(reason = &**reason, "no pushes are taken"),
                None => tracing::info!("no policy of RabbitMQ drops messages any more"),
            }
            announce.send_replace(reason);
        }
        Ok(())
    }

    async fn post(&self, notice: String) -> Result<(), AmqpError> {
        let declared = self.channel.exchange_declare(
            notice.into(),
            ExchangeKind::Fanout,
            ExchangeDeclareOptions::default(),
            FieldTable::default(),
        );
        within(self.bound(), declared).await
    }

    async fn delete(&self, queue: &str) {
        let delete = self.channel.queue_delete(queue.into(), QueueDeleteOptions::default());
        // It expires by itself.
        let _ = within(self.bound(), delete).await;
    }

    async fn close(&self) {
        for probe in &self.probes {
            self.delete(probe).await;
        }
        let _ = within(self.bound(), self.connection.close(200, "closing".into())).await;
    }
}

/// Returns true if a program has posted this notice. If not, the channel is closed.
pub(super) async fn is_posted(channel: &Channel, notice: &str, bound: Duration) -> bool {
    let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    let (kind, arguments) = (ExchangeKind::Fanout, FieldTable::default());
    let declared = channel.exchange_declare(notice.into(), kind, passive, arguments);
    let is_posted = within(bound, declared).await.is_ok();
    if is_posted {
        // Nothing depends on it.
        let _ = within(bound, channel.close(200, "done".into())).await;
    }
    is_posted
}

fn is_not_found(error: &lapin::Error) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(error)
        if *error.kind() == AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND))
}
