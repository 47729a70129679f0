//! The schedule of faults: a pure function of the seed, so that a failure can be replayed.

use std::{fmt, time::Duration};

use rand::{RngExt, SeedableRng, rngs::SmallRng, seq::SliceRandom};

/// What a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Blow {
    /// SIGKILL; it is started again after the time.
    Kill,
    /// SIGSTOP; it goes on after the time.
    Freeze,
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

/// Frozen for between these, in milliseconds. Longer than the time that a worker waits for the
/// MQTT broker's acknowledgements, shorter than heartbeats.
const FROZEN: std::ops::RangeInclusive<u64> = 1_000..=6_000;
/// Away after a kill.
const DEAD: std::ops::RangeInclusive<u64> = 0..=2_000;
/// Between two faults that overlap.
const APART: std::ops::RangeInclusive<u64> = 0..=3_000;
/// Between two rounds.
const PEACE: std::ops::RangeInclusive<u64> = 300..=3_000;
/// One round in this many has two faults.
const OVERLAPPING: u32 = 4;
/// How long RabbitMQ takes to start, about; the others are quick.
const RABBITMQ_START: Duration = Duration::from_secs(7);
/// How long it takes until pushes flow again, about.
const FLOWING: Duration = Duration::from_secs(2);

/// Rounds with so many faults in all. Every ten faults are of all ten kinds.
pub(crate) fn schedule(seed: u64, faults: usize) -> Vec<Round> {
    let random = &mut SmallRng::seed_from_u64(seed);
    let mut deck: Vec<Fault> = Vec::new();
    while deck.len() < faults {
        let mut every_kind: Vec<Fault> = Fault::every_kind(random);
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

fn millis(random: &mut SmallRng, range: std::ops::RangeInclusive<u64>) -> Duration {
    Duration::from_millis(random.random_range(range))
}

impl Fault {
    fn every_kind(random: &mut SmallRng) -> Vec<Self> {
        let mut faults = Vec::new();
        for (blow, range) in [(Blow::Kill, DEAD), (Blow::Freeze, FROZEN)] {
            let ingest = Part::Ingest(random.random_range(0..2));
            let worker = Part::Worker(random.random_range(0..2));
            for part in [ingest, worker, Part::RabbitMq, Part::Redis, Part::Mosquitto] {
                faults.push(Self { part, blow, away: millis(random, range.clone()) });
            }
        }
        faults
    }

    fn length(&self) -> Duration {
        match (self.part, self.blow) {
            (Part::RabbitMq, Blow::Kill) => self.away + RABBITMQ_START,
            _ => self.away,
        }
    }

    /// Its kind, for the table of figures.
    pub(crate) fn kind(&self) -> String {
        let blow = match self.blow {
            Blow::Kill => "kill",
            Blow::Freeze => "freeze",
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
        write!(f, "{}{number} for {:?}", self.kind(), self.away)
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        self.second.map_or(Ok(()), |(apart, second)| write!(f, ", after {apart:?} {second}"))
    }
}

#[test]
fn one_seed_is_one_schedule_and_every_ten_faults_are_of_every_kind() {
    for seed in 0..10 {
        let rounds = schedule(seed, 30);
        assert_eq!(rounds, schedule(seed, 30));
        assert_ne!(rounds, schedule(seed + 1, 30));
        let faults = rounds.iter().flat_map(|r| [Some(r.first), r.second.map(|(_, s)| s)]);
        let kinds: Vec<String> = faults.flatten().map(|fault| fault.kind()).collect();
        assert_eq!(kinds.len(), 30);
        for ten in kinds.chunks(10) {
            assert_eq!(ten.iter().collect::<std::collections::BTreeSet<_>>().len(), 10, "{ten:?}");
        }
    }
}
