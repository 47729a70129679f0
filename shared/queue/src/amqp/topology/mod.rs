//! Every queue of the service as plain data: names, properties and bindings. `declare` declares
//! them.
//!
//! Constraints it lives under:
//! - RabbitMQ 3.10 to 4.x, no plugins. All queues are durable quorum queues.
//! - Messages that move from one queue to another inside the broker must not be lost on the way, so
//!   all dead-lettering is at-least-once, which exists for quorum queues that reject when full.
//! - At-least-once dead-lettering has a price. When nodes of a cluster are replaced, a queue that
//!   has it can be left without a leader until an operator starts it again by hand
//!   (rabbitmq-server issue 16652, seen with 4.2). So no queue has it that can do without.
//! - Every limit that matters is written down here. A quorum queue without a delivery limit of its
//!   own has the default of its version: 20 in RabbitMQ 4, after which messages are dropped, and
//!   none in 3.10.
//!
//! The queues of a namespace `push`:
//! - `push.jobs`, `push.tasks` and `push.isolated`, the lanes, and `push.dead`, the dead letters.
//!   Workers see how often a message was delivered, move it to `push.isolated` when that is often, and
//!   dead-letter it themselves when it is too often there. RabbitMQ drops something from them only if a
//!   policy says so, and then into `push.dropped`, from where it is restored (`policies`). That is not
//!   at-least-once, for the reason above.
//! - `push.delay.1s`, `push.delay.2s`, … `push.delay.2048s`, shared by the lanes. RabbitMQ only
//!   expires the message at the head of a queue, so all messages of a delay queue must have the
//!   same time to live. A delay is therefore written in binary, and the message waits once in the
//!   queue of each bit that is set. Each queue has a topic exchange of the same name in front of
//!   it, which matches its bit in the routing key (`1.0.1.jobs`) and sends the message into the
//!   queue or on to the next exchange; the last one, `push.due`, sends it to its lane.
//!
//! So twelve queues make every delay up to [`MAX_DELAY`], where fixed delays of the same accuracy
//! would take 37 queues for each lane. Delays are rounded up to three significant bits, so that a
//! message makes at most three hops and stays within the quarter that the trait allows.
//!
//! The delay queues work by dead-lettering, so they alone run the risk above. A delay queue without
//! a leader confirms nothing: publishing a delay that needs it waits, and the messages in it are
//! late until it has a leader again, but not lost. New pushes and the lanes do not depend on it.
//! Delayed messages are few: a message that is postponed, paced or retried is a partition of a
//! broadcast or a part of an envelope, never one message for each device.

mod declare;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub(crate) use self::declare::{Counts, counts, declare, ready_count, table};
use crate::{Lane, MAX_DELAY};

/// The number of delay queues; the longest waits `2^(LEVELS - 1)` seconds.
const LEVELS: u32 = 12;
/// A delay is rounded up to this many significant bits, which makes it longer by a quarter at most,
/// and is the largest number of its hops.
const SIGNIFICANT_BITS: u32 = 3;
/// RabbitMQ must drop no message for having been delivered often: not in the lanes, where the
/// worker decides, and not among the dead letters, which are delivered each time they are listed.
/// This is the largest number that every version accepts; RabbitMQ 3.10 does not know "no limit"
/// (-1).
const NO_DELIVERY_LIMIT: i32 = i32::MAX;

/// The names of one namespace's queues.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    namespace: String,
}

/// The value of a queue argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Argument {
    /// An AMQP long string.
    Text(String),
    /// An AMQP long int.
    Int(i32),
}

/// A durable quorum queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueSpec {
    pub(crate) name: String,
    /// Its arguments, with the queue type among them.
    pub(crate) arguments: Vec<(&'static str, Argument)>,
}

/// The destination of a binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A queue.
    Queue(String),
    /// Another exchange.
    Exchange(String),
}

/// A route from an exchange to a queue or another exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binding {
    /// The exchange.
    pub(crate) source: String,
    /// The topic pattern.
    pub(crate) pattern: String,
    /// The destination.
    pub(crate) target: Target,
}

/// Everything that is declared, in the order in which it must be.
#[derive(Debug, Clone)]
pub(crate) struct Topology {
    /// Durable topic exchanges.
    pub(crate) exchanges: Vec<String>,
    /// Durable quorum queues.
    pub(crate) queues: Vec<QueueSpec>,
    /// The routes between them.
    pub(crate) bindings: Vec<Binding>,
}

/// Exchange and routing key of a publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// The exchange; empty for the default one, which routes to the queue named by the key.
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
}

impl Names {
    /// The names under a namespace, which has been checked, so that they stay far below AMQP's 255
    /// bytes.
    pub(crate) fn new(namespace: String) -> Self {
        Self { namespace }
    }

    pub(crate) fn lane(&self, lane: Lane) -> String {
        format!("{}.{}", self.namespace, lane.name())
    }

    /// The lane with this queue.
    pub(crate) fn lane_of(&self, queue: &str) -> Option<Lane> {
        Lane::QUEUES.into_iter().find(|lane| self.lane(*lane) == queue)
    }

    pub(crate) fn dead_letters(&self) -> String {
        format!("{}.dead", self.namespace)
    }

    /// The queue for messages that a policy makes other queues drop.
    pub(crate) fn dropped(&self) -> String {
        format!("{}.dropped", self.namespace)
    }

    /// A queue by which a program learns of policies.
    pub(crate) fn probe(&self, what: &str, program: &str) -> String {
        format!("{}.probe.{what}.{program}", self.namespace)
    }

    /// The exchange by which programs tell one another of a policy with this key.
    pub(crate) fn policy_notice(&self, key: &str) -> String {
        format!("{}.policy.{key}", self.namespace)
    }

    pub(crate) fn delay_queues(&self) -> impl Iterator<Item = String> {
        (0..LEVELS).map(|level| self.delay(level))
    }

    /// The name of a delay queue and of the exchange in front of it.
    fn delay(&self, level: u32) -> String {
        format!("{}.delay.{}s", self.namespace, 1_u32 << level)
    }

    /// The exchange in front of the lanes, for messages whose delay is over.
    fn due(&self) -> String {
        format!("{}.due", self.namespace)
    }

    /// The exchange that messages reach after a level.
    fn exchange_after(&self, level: u32) -> String {
        level.checked_sub(1).map_or_else(|| self.due(), |next| self.delay(next))
    }

    pub(crate) fn lane_address(&self, lane: Lane) -> Address {
        Address { exchange: String::new(), routing_key: self.lane(lane) }
    }

    pub(crate) fn dead_letter_address(&self) -> Address {
        Address { exchange: String::new(), routing_key: self.dead_letters() }
    }

    /// The address from which a message comes to a lane after a delay.
    pub(crate) fn delayed_address(&self, lane: Lane, delay: Duration) -> Address {
        if delay.is_zero() {
            return self.lane_address(lane);
        }
        let seconds = rounded_up(delay);
        let mut routing_key = String::new();
        for level in (0..LEVELS).rev() {
            routing_key.push_str(if seconds >> level & 1 == 1 { "1." } else { "0." });
        }
        routing_key.push_str(lane.name());
        Address { exchange: self.delay(LEVELS - 1), routing_key }
    }

    /// Everything to declare.
    pub(crate) fn topology(&self) -> Topology {
        let levels = || (0..LEVELS).rev();
        let dropped = self.dropped();
        let consumed = |name| consumed(name, &dropped);
        // First the queue that the others name.
        let mut arguments = quorum();
        arguments.push(("x-delivery-limit", Argument::Int(NO_DELIVERY_LIMIT)));
        arguments.push(("x-overflow", Argument::Text("reject-publish".to_owned())));
        let mut queues = vec![QueueSpec { name: self.dropped(), arguments }];
        queues.extend(Lane::QUEUES.into_iter().map(|lane| consumed(self.lane(lane))));
        queues.push(consumed(self.dead_letters()));
        queues.extend(levels().map(|level| self.delay_queue(level)));
        let mut exchanges: Vec<String> = levels().map(|level| self.delay(level)).collect();
        exchanges.push(self.due());
        let mut bindings: Vec<Binding> =
            levels().flat_map(|level| self.level_bindings(level)).collect();
        bindings.extend(Lane::QUEUES.into_iter().map(|lane| Binding {
            source: self.due(),
            pattern: format!("#.{}", lane.name()),
            target: Target::Queue(self.lane(lane)),
        }));
        Topology { exchanges, queues, bindings }
    }

    fn delay_queue(&self, level: u32) -> QueueSpec {
        let mut arguments = quorum();
        // At most 2^11 s: fits.
        arguments.push(("x-message-ttl", Argument::Int(1000 << level)));
        arguments.extend(dead_lettering(&self.exchange_after(level)));
        QueueSpec { name: self.delay(level), arguments }
    }

    fn level_bindings(&self, level: u32) -> [Binding; 2] {
        let position = "*.".repeat((LEVELS - 1 - level) as usize);
        let binding = |bit: char, target| Binding {
            source: self.delay(level),
            pattern: format!("{position}{bit}.#"),
            target,
        };
        [
            binding('1', Target::Queue(self.delay(level))),
            binding('0', Target::Exchange(self.exchange_after(level))),
        ]
    }
}

/// A queue that programs consume: it keeps its messages until a consumer settles them. If a policy
/// still makes it drop messages, they go to this queue. A policy with a maximal length makes it
/// refuse them.
fn consumed(name: String, dropped: &str) -> QueueSpec {
    let text = |value: &str| Argument::Text(value.to_owned());
    let mut arguments = quorum();
    arguments.extend([
        ("x-delivery-limit", Argument::Int(NO_DELIVERY_LIMIT)),
        ("x-overflow", text("reject-publish")),
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text(dropped)),
    ]);
    QueueSpec { name, arguments }
}

/// The arguments of every queue.
pub(crate) fn quorum() -> Vec<(&'static str, Argument)> {
    vec![("x-queue-type", Argument::Text("quorum".to_owned()))]
}

fn dead_lettering(exchange: &str) -> [(&'static str, Argument); 3] {
    let text = |value: &str| Argument::Text(value.to_owned());
    [
        ("x-dead-letter-exchange", text(exchange)),
        ("x-dead-letter-strategy", text("at-least-once")),
        // At-least-once requires this; without a length limit it has no other effect.
        ("x-overflow", text("reject-publish")),
    ]
}

/// The delay in whole seconds, cut to [`MAX_DELAY`] and rounded up to [`SIGNIFICANT_BITS`].
fn rounded_up(delay: Duration) -> u32 {
    let delay = delay.min(MAX_DELAY);
    let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
    // At most MAX_DELAY: fits.
    let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
    let bits = u32::BITS - seconds.leading_zeros();
    let step = 1 << bits.saturating_sub(SIGNIFICANT_BITS);
    seconds.next_multiple_of(step)
}
