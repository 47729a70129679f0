//! The probes: queues of this program that show it the effect of policies before they do harm.

use std::time::{Duration, Instant};

use lapin::{
    BasicProperties,
    options::{BasicGetOptions, QueueDeclareOptions, QueueDeleteOptions},
};

use super::{Findings, PERIOD, PROBED, PolicyKey, Session};
use crate::amqp::{
    error::{AmqpError, within},
    topology::{Address, Argument, declare, quorum, table},
};

/// Milliseconds for which the probes of a dead program are kept.
const PROBES_EXPIRE: i32 = 600_000;
/// The pause between reads of the probe with messages. Only reading keeps it from expiring:
/// RabbitMQ 3.10 counts neither a publish nor a declaration as use of a quorum queue.
const USED_EVERY: Duration = Duration::from_secs(60);
/// A full queue refuses at the latest this message: RabbitMQ 3.10 takes one or two beyond the limit.
const MOST_BEYOND: usize = 8;

/// The names of the probes.
#[derive(Debug, Clone)]
pub(super) struct Probes {
    /// Gets a message in each period, which must last.
    pub(super) messages: String,
    /// Is not used, and must last.
    pub(super) idle: String,
    /// Is full, and must refuse what does not fit.
    pub(super) full: String,
}

impl Session {
    pub(super) async fn declare_probes(&self) -> Result<(), AmqpError> {
        let Probes { messages, idle, .. } = &self.probes;
        self.declare_probe(messages, &[]).await?;
        self.declare_probe(idle, &[]).await?;
        self.declare_full().await
    }

    async fn declare_full(&self) -> Result<(), AmqpError> {
        let limit = [
            ("x-max-length", Argument::Int(1)),
            ("x-overflow", Argument::Text("reject-publish".to_owned())),
        ];
        self.declare_probe(&self.probes.full, &limit).await
    }

    async fn declare_probe(
        &self,
        name: &str,
        own: &[(&'static str, Argument)],
    ) -> Result<(), AmqpError> {
        let mut arguments = quorum();
        arguments.push(("x-expires", Argument::Int(PROBES_EXPIRE)));
        arguments.extend_from_slice(own);
        let options = QueueDeclareOptions::durable();
        let declared = self.channel.queue_declare(name.into(), options, table(&arguments));
        within(self.bound(), declared).await.map(drop)
    }

    /// Looks at the probes and at the service's queues, and prepares the next look.
    pub(super) async fn look(&mut self, findings: &mut Findings) -> Result<(), AmqpError> {
        findings.forget(Instant::now());
        let drops_oldest = self.drops_oldest().await?;
        if drops_oldest {
            findings.note(PolicyKey::MaxLength, self.probes.full.clone(), Instant::now());
        }
        self.look_at_messages(findings, drops_oldest).await?;
        self.look_at_idle(findings).await?;
        self.keep_topology(findings).await
    }

    async fn look_at_messages(
        &mut self,
        findings: &mut Findings,
        drops_oldest: bool,
    ) -> Result<(), AmqpError> {
        let now = Instant::now();
        let messages = self.probes.messages.clone();
        let found = self.count(&[&messages]).await?.pop().flatten();
        // By the time of the answer, because the server may have been slow.
        self.sent.retain(|sent| sent.elapsed() < PROBED);
        let expected = self.sent.len() as u64;
        match found {
            Some(count) if count >= expected => {}
            // A policy that drops the oldest messages explains the missing ones.
            Some(_) if drops_oldest => self.sent.clear(),
            found => {
                let key = if found.is_none() { PolicyKey::Expires } else { PolicyKey::MessageTtl };
                findings.note(key, messages.clone(), now);
                self.sent.clear();
                self.declare_probe(&messages, &[]).await?;
            }
        }
        if self.used.elapsed() >= USED_EVERY {
            let get =
                self.channel.basic_get(messages.as_str().into(), BasicGetOptions { no_ack: true });
            if within(self.bound(), get).await?.is_some() {
                self.sent.pop_front();
            }
            self.used = Instant::now();
        }
        // Each message goes by itself after a while, so that there are few of them.
        let longer = (PROBED + PERIOD).as_millis().to_string();
        let properties = BasicProperties::default().with_expiration(longer.into());
        match self.publish_probe(messages, properties).await {
            Ok(()) => self.sent.push_back(now),
            // A policy with a maximal length, which is harmless as long as the queue refuses.
            Err(AmqpError::Nacked) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn look_at_idle(&mut self, findings: &mut Findings) -> Result<(), AmqpError> {
        if self.idle_since.elapsed() < PROBED {
            return Ok(());
        }
        let idle = self.probes.idle.clone();
        if self.count(&[&idle]).await? == [None] {
            findings.note(PolicyKey::Expires, idle.clone(), Instant::now());
        }
        // It must be a new one: what was looked at may count as used.
        self.delete(&idle).await;
        self.declare_probe(&idle, &[]).await?;
        self.idle_since = Instant::now();
        Ok(())
    }

    /// Fills a queue until it refuses, and returns true if it never does: of `overflow`, that of a
    /// policy is in force and not that of the declaration.
    async fn drops_oldest(&self) -> Result<bool, AmqpError> {
        for _ in 0..MOST_BEYOND {
            let sent = self.publish_probe(self.probes.full.clone(), BasicProperties::default());
            match sent.await {
                Ok(()) => {}
                Err(AmqpError::Nacked) => return Ok(false),
                // It has expired, which the unused probe shows as well.
                Err(AmqpError::InDoubt) => {
                    self.declare_full().await?;
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    async fn publish_probe(
        &self,
        queue: String,
        properties: BasicProperties,
    ) -> Result<(), AmqpError> {
        let to = Address { exchange: String::new(), routing_key: queue };
        self.publish(to, b"probe", properties).await
    }

    /// Declares queues that were deleted, by a policy or by hand.
    async fn keep_topology(&self, findings: &mut Findings) -> Result<(), AmqpError> {
        let topology = self.dialer.names.topology();
        let queues: Vec<&str> = topology.queues.iter().map(|queue| queue.name.as_str()).collect();
        let counts = self.count(&queues).await?;
        for (queue, _) in queues.iter().zip(counts).filter(|(_, count)| count.is_none()) {
            tracing::warn!(
                runbook = "rabbitmq-takes-no-messages",
                queue,
                "a queue of the service was deleted, with what was in it"
            );
            findings.note(PolicyKey::Expires, (*queue).to_owned(), Instant::now());
            declare(&self.channel, &topology, self.bound()).await?;
        }
        Ok(())
    }

    pub(super) async fn delete_probes(&self) {
        let Probes { messages, idle, full } = &self.probes;
        for probe in [messages, idle, full] {
            self.delete(probe).await;
        }
    }

    async fn delete(&self, queue: &str) {
        let delete = self.channel.queue_delete(queue.into(), QueueDeleteOptions::default());
        // It expires by itself.
        let _ = within(self.bound(), delete).await;
    }
}
