//! One connection on which a program watches for policies.
//!
//! - `probes`: what is looked at in each period
//! - `restoring`: what was dropped

mod probes;
mod restoring;

use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{FutureExt as _, StreamExt as _};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, Consumer, ErrorKind, ExchangeKind,
    message::Delivery,
    options::{
        BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
        ExchangeDeclareOptions, ExchangeDeleteOptions,
    },
    protocol::{AMQPErrorKind, AMQPSoftError},
    types::{FieldTable, ShortString},
};
use tokio::{
    sync::watch,
    time::{interval, timeout},
};
use uuid::Uuid;

use self::probes::Probes;
use super::{Findings, PERIOD, PROBED, PolicyKey};
use crate::amqp::{
    connection::Dialer,
    error::{AmqpError, within},
    topology::{Address, ready_count},
};

/// The most dropped messages that a program holds. The policy may apply to their queue as well, and
/// then drops there what no program holds.
const PREFETCH: u16 = 1000;
/// Time for which a notice is believed that this program finds no reason for.
const NOTICE: Duration = Duration::from_secs(30);
/// The longest wait of a stop for the deletion of probes.
const CLOSING: Duration = Duration::from_secs(1);
const PERSISTENT: u8 = 2;

pub(super) struct Session {
    dialer: Dialer,
    connection: Connection,
    /// For dropped messages, and for the probes.
    channel: Channel,
    dropped: Consumer,
    /// Dropped messages that are not in their queue again, each with the time since when it is
    /// held.
    held: VecDeque<(Instant, Delivery)>,
    probes: Probes,
    /// When each message was sent to the probe with messages that may still be there.
    sent: VecDeque<Instant>,
    /// When the probe with messages was last read from.
    used: Instant,
    /// When the unused probe was declared.
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
        let probe = |what| dialer.names.probe(what, &name);
        let probes =
            Probes { messages: probe("messages"), idle: probe("idle"), full: probe("full") };
        let session = Self {
            dialer: dialer.clone(),
            connection: link.connection,
            channel,
            dropped,
            held: VecDeque::new(),
            probes,
            sent: VecDeque::new(),
            used: Instant::now(),
            idle_since: Instant::now(),
            posted: BTreeMap::new(),
        };
        session.declare_probes().await?;
        Ok(session)
    }

    /// Watches until the connection fails.
    pub(super) async fn run(
        &mut self,
        findings: &mut Findings,
        announce: &watch::Sender<Option<Arc<str>>>,
    ) -> Result<Infallible, AmqpError> {
        let mut ticks = interval(PERIOD);
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => {
                    self.look(findings).await?;
                    self.restore().await?;
                }
                dropped = self.dropped.next() => {
                    let dropped = dropped.ok_or(AmqpError::Cancelled)??;
                    self.hold(dropped, findings);
                    // Deliveries that came with it need no answer of their own.
                    while let Some(Some(dropped)) = self.dropped.next().now_or_never() {
                        self.hold(dropped?, findings);
                    }
                }
            }
            self.publish_findings(findings, announce).await?;
        }
    }

    fn bound(&self) -> Duration {
        self.dialer.settings.request_timeout
    }

    /// The messages in each queue; none if there is no such queue.
    async fn count(&self, queues: &[&str]) -> Result<Vec<Option<u64>>, AmqpError> {
        let mut channel = within(self.bound(), self.connection.create_channel()).await?;
        let mut counts = Vec::with_capacity(queues.len());
        for queue in queues {
            counts.push(match ready_count(&channel, queue, self.bound()).await {
                Ok(count) => Some(count),
                Err(AmqpError::Broken(error)) if is_not_found(&error) => {
                    // It has closed the channel.
                    channel = within(self.bound(), self.connection.create_channel()).await?;
                    None
                }
                Err(error) => return Err(error),
            });
        }
        within(self.bound(), channel.close(200, "done".into())).await?;
        Ok(counts)
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

    /// Reports the findings to this program and the others.
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
                Some(reason) => tracing::error!(
                    runbook = "rabbitmq-takes-no-messages",
                    reason = &**reason,
                    "no pushes are taken"
                ),
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

    /// A server that takes no messages may answer nothing. Then the probes expire by themselves.
    pub(super) async fn close(&self) {
        let close = async {
            self.delete_probes().await;
            let _ = self.connection.close(200, "closing".into()).await;
        };
        let _ = timeout(CLOSING, close).await;
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
