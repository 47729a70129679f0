//! The schedule of faults: a pure function of the seed, so that a failure can be replayed.

use std::{fmt, ops::RangeInclusive, time::Duration};

use push_tests::{mqtt_proxy::Manner, servers::Refusal};
use rand::{RngExt, SeedableRng, rngs::SmallRng, seq::SliceRandom};

/// What a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// One of the two `ingest` processes.
    Ingest(usize),
    /// One of the two workers.
    Worker(usize),
    RabbitMq,
    Redis,
    Mosquitto,
}

/// What happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blow {
    /// SIGKILL; it is started again after the time.
    Kill,
    /// SIGSTOP; it goes on after the time.
    Freeze,
    /// SIGKILL; when it is started again, its clock is so much ahead, until another of these.
    Clock(Duration),
    /// Redis answers and takes no writes.
    Refuse(Refusal),
    /// Redis is killed and comes back without what it was told so long before.
    Forget(Duration),
    /// RabbitMQ is short of memory: it takes nothing from connections that publish.
    Alarm,
    /// The MQTT broker takes messages and acknowledges them late or never.
    Answer(Manner),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) part: Part,
    pub(crate) blow: Blow,
    /// How long it is away.
    pub(crate) away: Duration,
}

/// One or two faults and the peace after them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Round {
    pub(crate) first: Fault,
    /// Another one that begins so long after the first, whatever has become of that.
    pub(crate) second: Option<(Duration, Fault)>,
    /// Between this round and the next.
    pub(crate) peace: Duration,
}

/// Times in milliseconds.
type Range = RangeInclusive<u64>;

/// Frozen for so long. The longer ones outlast the time that a worker waits for the MQTT broker's
/// acknowledgements; all are shorter than heartbeats.
const FROZEN: Range = 1_000..=6_000;
/// Away after a kill.
const DEAD: Range = 0..=2_000;
/// So long writes are refused.
const REFUSING: Range = 1_000..=8_000;
/// So long RabbitMQ is short of memory.
const ALARMED: Range = 2_000..=25_000;
/// So long the MQTT broker acknowledges late, and how late.
const SLOW: Range = 2_000..=8_000;
const LATE: Range = 100..=900;
/// So long it acknowledges nothing: less than workers wait, or each of their tries of a device
/// would be one more copy.
const MUTE: Range = 1_000..=4_000;
/// So much Redis forgets.
const FORGOTTEN: Range = 1_000..=3_000;
/// So much a clock is ahead. None is ever behind, so any two differ by less than the second that
/// the service allows.
const AHEAD: Range = 0..=900;
/// Between two faults that overlap.
const APART: Range = 0..=3_000;
/// Between two rounds.
const PEACE: Range = 300..=3_000;
/// One round in this many has two faults.
const OVERLAPPING: u32 = 4;
/// How long RabbitMQ takes to start, about; the others are quick.
const RABBITMQ_START: Duration = Duration::from_secs(7);
/// How long it takes until pushes flow again, about.
const FLOWING: Duration = Duration::from_secs(2);
/// So many kinds of faults there are.
pub(crate) const KINDS: usize = 17;

/// Rounds with so many faults in all. Every [`KINDS`] faults are of all kinds.
pub(crate) fn schedule(seed: u64, faults: usize) -> Vec<Round> {
    let random = &mut SmallRng::seed_from_u64(seed);
    let mut deck: Vec<Fault> = Vec::new();
    while deck.len() < faults {
        let mut every_kind = Fault::every_kind(random);
        every_kind.shuffle(random);
        deck.extend(every_kind);
    }
    let mut faults = deck.into_iter().take(faults).peekable();
    let mut rounds = Vec::new();
    while let Some(first) = faults.next() {
        let overlapping = random.random_ratio(1, OVERLAPPING);
        let second = faults.next_if(|second| overlapping && second.part != first.part);
        let second = second.map(|second| (millis(random, APART), second));
        rounds.push(Round { first, second, peace: millis(random, PEACE) });
    }
    rounds
}

/// How long a schedule takes, about.
pub(crate) fn length(rounds: &[Round]) -> Duration {
    let length = |round: &Round| {
        let second = round.second.map_or(Duration::ZERO, |(apart, fault)| apart + fault.length());
        round.first.length().max(second) + FLOWING + round.peace
    };
    rounds.iter().map(length).sum()
}

fn millis(random: &mut SmallRng, range: Range) -> Duration {
    Duration::from_millis(random.random_range(range))
}

impl Fault {
    /// One of each of the [`KINDS`].
    fn every_kind(random: &mut SmallRng) -> Vec<Self> {
        let mut faults = Vec::new();
        let mut add = |random: &mut SmallRng, part, blow, away| {
            faults.push(Self { part, blow, away: millis(random, away) });
        };
        for (blow, away) in [(Blow::Kill, DEAD), (Blow::Freeze, FROZEN)] {
            let ingest = Part::Ingest(random.random_range(0..2));
            let worker = Part::Worker(random.random_range(0..2));
            for part in [ingest, worker, Part::RabbitMq, Part::Redis, Part::Mosquitto] {
                add(random, part, blow, away.clone());
            }
        }
        let programs: [fn(usize) -> Part; 2] = [Part::Ingest, Part::Worker];
        for part in programs {
            let part = part(random.random_range(0..2));
            let clock = Blow::Clock(millis(random, AHEAD));
            add(random, part, clock, DEAD);
        }
        let refusal = Refusal::ALL[random.random_range(0..Refusal::ALL.len())];
        add(random, Part::Redis, Blow::Refuse(refusal), REFUSING);
        let forget = Blow::Forget(millis(random, FORGOTTEN));
        add(random, Part::Redis, forget, DEAD);
        add(random, Part::RabbitMq, Blow::Alarm, ALARMED);
        let slow = Blow::Answer(Manner::Slow(millis(random, LATE)));
        add(random, Part::Mosquitto, slow, SLOW);
        add(random, Part::Mosquitto, Blow::Answer(Manner::Mute), MUTE);
        faults
    }

    fn length(&self) -> Duration {
        match (self.part, self.blow) {
            (Part::RabbitMq, Blow::Kill) => self.away + RABBITMQ_START,
            (_, Blow::Forget(what)) => what + self.away,
            _ => self.away,
        }
    }

    /// Whether a device may get a copy more because of it: a process or a connection ended with
    /// deliveries whose outcome was nowhere recorded, or the record was forgotten. A server that
    /// refuses, or is slow, costs time and nothing else.
    pub(crate) fn justifies_a_copy(&self) -> bool {
        match self.blow {
            Blow::Kill | Blow::Freeze | Blow::Clock(_) => !matches!(self.part, Part::Ingest(_)),
            Blow::Forget(_) | Blow::Answer(Manner::Mute) => true,
            Blow::Refuse(_) | Blow::Alarm | Blow::Answer(Manner::Slow(_) | Manner::Prompt) => false,
        }
    }

    /// Whether the MQTT broker's sessions end with it.
    pub(crate) fn ends_sessions(&self) -> bool {
        (self.part, self.blow) == (Part::Mosquitto, Blow::Kill)
    }

    /// Whether the index loses its last writes with it.
    pub(crate) fn forgets(&self) -> bool {
        matches!(self.blow, Blow::Forget(_))
    }

    /// Its kind, for the table of figures.
    pub(crate) fn kind(&self) -> String {
        let blow = match self.blow {
            Blow::Kill => "kill",
            Blow::Freeze => "freeze",
            Blow::Clock(_) => "wrong clock",
            Blow::Refuse(_) => "refusing",
            Blow::Forget(_) => "forgetful",
            Blow::Alarm => "alarmed",
            Blow::Answer(Manner::Mute) => "mute",
            Blow::Answer(Manner::Slow(_) | Manner::Prompt) => "slow",
        };
        let part = match self.part {
            Part::Ingest(_) => "ingest",
            Part::Worker(_) => "worker",
            Part::RabbitMq => "rabbitmq",
            Part::Redis => "redis",
            Part::Mosquitto => "mosquitto",
        };
        format!("{blow} {part}")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = match self.part {
            Part::Ingest(n) | Part::Worker(n) => format!(" {n}"),
            Part::RabbitMq | Part::Redis | Part::Mosquitto => String::new(),
        };
        write!(f, "{}{number}", self.kind())?;
        match self.blow {
            Blow::Clock(ahead) => write!(f, " ({ahead:?} ahead)")?,
            Blow::Refuse(why) => write!(f, " ({why:?})")?,
            Blow::Forget(what) => write!(f, " (the last {what:?})")?,
            Blow::Answer(Manner::Slow(late)) => write!(f, " ({late:?} late)")?,
            _ => {}
        }
        write!(f, " for {:?}", self.away)
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        self.second.map_or(Ok(()), |(apart, second)| write!(f, ", after {apart:?} {second}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::SHORT;

    fn kinds(rounds: &[Round]) -> Vec<String> {
        let faults = rounds.iter().flat_map(|r| [Some(r.first), r.second.map(|(_, s)| s)]);
        faults.flatten().map(|fault| fault.kind()).collect()
    }

    fn distinct(kinds: &[String]) -> usize {
        kinds.iter().collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn one_seed_is_one_schedule_and_as_many_faults_as_there_are_kinds_are_of_every_kind() {
        for seed in 0..10 {
            let rounds = schedule(seed, 3 * KINDS);
            assert_eq!(rounds, schedule(seed, 3 * KINDS));
            assert_ne!(rounds, schedule(seed + 1, 3 * KINDS));
            let kinds = kinds(&rounds);
            assert_eq!(kinds.len(), 3 * KINDS);
            for some in kinds.chunks(KINDS) {
                assert_eq!(distinct(some), KINDS, "{some:?}");
            }
        }
    }

    #[test]
    fn the_short_form_kills_every_kind_of_process_and_has_every_fault_that_is_no_freeze() {
        let kinds = kinds(&schedule(SHORT.seed, SHORT.faults));
        let others = kinds.iter().filter(|kind| !kind.starts_with("freeze")).count();
        assert_eq!((others, distinct(&kinds)), (KINDS - 5, SHORT.faults), "{kinds:?}");
    }
}
