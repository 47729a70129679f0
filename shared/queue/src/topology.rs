//! Every queue of the service as plain data: names, properties, and how they hang together.
//!
//! It lives under these constraints:
//! - RabbitMQ 3.10 to 4.x, no plugins. All queues are durable quorum queues.
//! - What moves from one queue to another inside the broker must not be lost on the way, so every
//!   dead-lettering is at-least-once, which exists for quorum queues that reject when full.
//! - At-least-once dead-lettering has a price. When nodes of a cluster are replaced, a queue that
//!   has it can be left without a leader until an operator starts it again by hand
//!   (rabbitmq-server issue 16652, seen with 4.2). So no queue has it that can do without.
//! - Every limit that matters is written down here. A quorum queue without one limits deliveries
//!   to 20 in RabbitMQ 4, drops what exceeds that, and does not limit them in 3.10.
//!
//! The queues of a namespace `push`:
//! - `push.jobs` and `push.tasks`, the lanes, and `push.dead` for what cannot be processed. They
//!   dead-letter nothing: workers see how often a message was delivered, and put aside what is
//!   delivered too often themselves.
//! - `push.delay.1s`, `push.delay.2s`, … `push.delay.2048s`, shared by the lanes. RabbitMQ only
//!   expires the message at the head of a queue, so all messages of a delay queue must have the
//!   same time to live. A delay is therefore written in binary, and the message waits once in the
//!   queue of each bit that is set. Each queue has a topic exchange of the same name in front of
//!   it, which looks at its bit in the routing key (`1.0.1.jobs`) and sends the message into the
//!   queue or past it; after the last one, `push.due` sends it to its lane.
//!
//! Twelve queues so make every delay up to [`MAX_DELAY`], where fixed delays to the same accuracy
//! would take 37 for each lane. Rounding up to three significant bits keeps a message to three
//! hops and within the quarter that the trait allows.
//!
//! The delay queues live by dead-lettering, so they alone run the risk above. A delay queue without
//! a leader confirms nothing: who publishes a delay that needs it waits, and the messages in it are
//! late until it has a leader again, but not lost. Lanes and new pushes do not pass there. Delayed
//! messages are few: what is put off, paced or tried again is a part of a broadcast or of an
//! envelope, never a message for each device.

use std::time::Duration;

use super::{Lane, MAX_DELAY};

/// The number of delay queues; the longest waits `2^(LEVELS - 1)` seconds.
const LEVELS: u32 = 12;
/// A delay is rounded up to this many significant bits: at most a quarter more, at most as many
/// hops.
const SIGNIFICANT_BITS: u32 = 3;
/// No message is dropped for having been delivered often: not in the lanes, where the worker
/// decides, and not among the dead letters, which must survive being listed. The largest number
/// that every version takes; "no limit" (-1) is not known to RabbitMQ 3.10.
const NO_DELIVERY_LIMIT: i32 = i32::MAX;

/// The names of one namespace's queues.
#[derive(Debug, Clone)]
pub(super) struct Names {
    namespace: String,
}

/// The value of a queue argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Argument {
    /// An AMQP long string.
    Text(String),
    /// An AMQP long int.
    Int(i32),
}

/// A durable quorum queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueueSpec {
    /// Its name.
    pub(super) name: String,
    /// Its arguments, with the queue type among them.
    pub(super) arguments: Vec<(&'static str, Argument)>,
}

/// Where a binding leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// Into a queue.
    Queue(String),
    /// On to another exchange.
    Exchange(String),
}

/// Which messages of an exchange go where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Binding {
    /// The exchange.
    pub(super) source: String,
    /// The topic pattern.
    pub(super) pattern: String,
    /// Where to.
    pub(super) target: Target,
}

/// Everything that is declared, in an order that works.
#[derive(Debug, Clone)]
pub(super) struct Topology {
    /// Durable topic exchanges.
    pub(super) exchanges: Vec<String>,
    /// Durable quorum queues.
    pub(super) queues: Vec<QueueSpec>,
    /// Between those.
    pub(super) bindings: Vec<Binding>,
}

/// Where a message is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// The exchange; empty for the default one, which routes to the queue named by the key.
    pub(super) exchange: String,
    /// The routing key.
    pub(super) routing_key: String,
}

impl Names {
    /// The names under a checked namespace, which keeps them far below AMQP's 255 bytes.
    pub(super) fn new(namespace: String) -> Self {
        Self { namespace }
    }

    /// The queue of a lane.
    pub(super) fn lane(&self, lane: Lane) -> String {
        format!("{}.{}", self.namespace, lane.name())
    }

    /// The lane whose queue this is.
    pub(super) fn lane_of(&self, queue: &str) -> Option<Lane> {
        Lane::ALL.into_iter().find(|lane| self.lane(*lane) == queue)
    }

    /// The queue of dead letters.
    pub(super) fn dead(&self) -> String {
        format!("{}.dead", self.namespace)
    }

    /// A delay queue, and the exchange in front of it.
    fn delay(&self, level: u32) -> String {
        format!("{}.delay.{}s", self.namespace, 1_u32 << level)
    }

    /// The exchange in front of the lanes.
    fn due(&self) -> String {
        format!("{}.due", self.namespace)
    }

    /// Where messages go on to after a level.
    fn below(&self, level: u32) -> String {
        level.checked_sub(1).map_or_else(|| self.due(), |next| self.delay(next))
    }

    /// How to reach a lane at once.
    pub(super) fn now(&self, lane: Lane) -> Address {
        Address { exchange: String::new(), routing_key: self.lane(lane) }
    }

    /// How to reach the dead letters.
    pub(super) fn aside(&self) -> Address {
        Address { exchange: String::new(), routing_key: self.dead() }
    }

    /// How to reach a lane after a delay.
    pub(super) fn later(&self, lane: Lane, delay: Duration) -> Address {
        if delay.is_zero() {
            return self.now(lane);
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
    pub(super) fn topology(&self) -> Topology {
        let levels = || (0..LEVELS).rev();
        let mut queues: Vec<QueueSpec> =
            Lane::ALL.into_iter().map(|lane| consumed(self.lane(lane))).collect();
        queues.push(consumed(self.dead()));
        queues.extend(levels().map(|level| self.delay_queue(level)));
        let mut exchanges: Vec<String> = levels().map(|level| self.delay(level)).collect();
        exchanges.push(self.due());
        let mut bindings: Vec<Binding> =
            levels().flat_map(|level| self.level_bindings(level)).collect();
        bindings.extend(Lane::ALL.into_iter().map(|lane| Binding {
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
        arguments.extend(dead_lettering(&self.below(level)));
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
            binding('0', Target::Exchange(self.below(level))),
        ]
    }
}

/// A queue that programs consume: it keeps what it has until a consumer settles it.
fn consumed(name: String) -> QueueSpec {
    let mut arguments = quorum();
    arguments.push(("x-delivery-limit", Argument::Int(NO_DELIVERY_LIMIT)));
    QueueSpec { name, arguments }
}

fn quorum() -> Vec<(&'static str, Argument)> {
    vec![("x-queue-type", Argument::Text("quorum".to_owned()))]
}

fn dead_lettering(exchange: &str) -> [(&'static str, Argument); 3] {
    let text = |value: &str| Argument::Text(value.to_owned());
    [
        ("x-dead-letter-exchange", text(exchange)),
        ("x-dead-letter-strategy", text("at-least-once")),
        // At-least-once is only to be had with this; without a length limit it has no effect.
        ("x-overflow", text("reject-publish")),
    ]
}

/// Whole seconds with few significant bits, no fewer than `delay` or [`MAX_DELAY`].
fn rounded_up(delay: Duration) -> u32 {
    let delay = delay.min(MAX_DELAY);
    let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
    // At most MAX_DELAY: fits.
    let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
    let bits = u32::BITS - seconds.leading_zeros();
    let step = 1 << bits.saturating_sub(SIGNIFICANT_BITS);
    seconds.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_rounded_up_by_at_most_a_quarter_and_one_second() {
        for millis in (1..=MAX_DELAY.as_millis() as u64).step_by(7) {
            let delay = Duration::from_millis(millis);
            let waits = Duration::from_secs(rounded_up(delay).into());
            assert!(waits >= delay, "{delay:?} became {waits:?}");
            assert!(
                waits <= delay.mul_f64(1.25) + Duration::from_secs(1),
                "{delay:?} became {waits:?}"
            );
            assert!(rounded_up(delay).count_ones() <= SIGNIFICANT_BITS);
        }
    }

    #[test]
    fn the_longest_delay_fits_into_the_queues_and_longer_ones_are_cut() {
        assert_eq!(u64::from(rounded_up(MAX_DELAY)), MAX_DELAY.as_secs());
        assert!(rounded_up(MAX_DELAY) < 1 << LEVELS);
        assert_eq!(rounded_up(Duration::MAX), rounded_up(MAX_DELAY));
    }

    /// Follows a delayed message through the plain data, as the broker would.
    fn travel(names: &Names, address: &Address) -> (Duration, String) {
        let topology = names.topology();
        let matches = |pattern: &str, key: &str| {
            let (pattern, exact) = match pattern.strip_suffix(".#") {
                Some(start) => (start.split('.').collect::<Vec<_>>(), false),
                None => (pattern.trim_start_matches("#.").split('.').collect(), true),
            };
            let key: Vec<&str> = key.split('.').collect();
            let key = if exact { &key[key.len() - pattern.len()..] } else { &key[..pattern.len()] };
            pattern.iter().zip(key).all(|(p, k)| *p == "*" || p == k)
        };
        let (mut exchange, mut waited) = (address.exchange.clone(), 0);
        loop {
            let mut routes = topology
                .bindings
                .iter()
                .filter(|b| b.source == exchange && matches(&b.pattern, &address.routing_key));
            let binding = routes.next().expect("a message is never stranded");
            assert_eq!(routes.next(), None, "a message is never doubled");
            let queue = match &binding.target {
                Target::Exchange(next) => {
                    exchange = next.clone();
                    continue;
                }
                Target::Queue(queue) => topology.queues.iter().find(|q| q.name == *queue).unwrap(),
            };
            let argument =
                |name| queue.arguments.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone());
            match (argument("x-message-ttl"), argument("x-dead-letter-exchange")) {
                (Some(Argument::Int(ttl)), Some(Argument::Text(next))) => {
                    waited += u64::try_from(ttl).unwrap();
                    exchange = next;
                }
                _ => return (Duration::from_millis(waited), queue.name.clone()),
            }
        }
    }

    #[test]
    fn every_delay_ends_in_its_lane_after_its_time() {
        let names = Names::new("push".to_owned());
        for seconds in 1..=MAX_DELAY.as_secs() {
            let delay = Duration::from_secs(seconds);
            for lane in Lane::ALL {
                let (waited, queue) = travel(&names, &names.later(lane, delay));
                assert_eq!(queue, names.lane(lane));
                assert_eq!(waited, Duration::from_secs(rounded_up(delay).into()));
            }
        }
    }

    #[test]
    fn every_queue_is_a_quorum_queue_and_only_delay_queues_dead_letter_and_lose_nothing() {
        let at_least_once = ("x-dead-letter-strategy", Argument::Text("at-least-once".to_owned()));
        for queue in Names::new("push".to_owned()).topology().queues {
            assert_eq!(queue.arguments[0], ("x-queue-type", Argument::Text("quorum".to_owned())));
            let delays = queue.name.starts_with("push.delay.");
            let dead_letters = queue.arguments.iter().any(|(n, _)| n.starts_with("x-dead-letter"));
            assert_eq!(dead_letters, delays, "{}", queue.name);
            assert_eq!(queue.arguments.contains(&at_least_once), delays, "{}", queue.name);
        }
    }

    #[test]
    fn what_is_consumed_is_never_dropped_by_a_limit_of_some_version() {
        let never = ("x-delivery-limit", Argument::Int(i32::MAX));
        let names = Names::new("push".to_owned());
        for name in [names.lane(Lane::Jobs), names.lane(Lane::Tasks), names.dead()] {
            let queue = names.topology().queues.into_iter().find(|q| q.name == name).unwrap();
            assert!(queue.arguments.contains(&never), "{name}");
        }
    }
}
