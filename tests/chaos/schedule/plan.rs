//! The schedule of faults: a pure function of the seed, so that a failure can be replayed.

use std::{fmt, ops::RangeInclusive, time::Duration};

use push_tests::{mqtt_proxy::AckMode, servers::Refusal};
use rand::{RngExt, SeedableRng, rngs::SmallRng, seq::SliceRandom};

use crate::schedule::fault::{Blow, Fault, Part, Provider};

/// One or two faults, and the quiet time after them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Round {
    pub(crate) first: Fault,
    /// A second fault, and how long after the first it begins; the two may overlap.
    pub(crate) second: Option<(Duration, Fault)>,
    /// The pause before the next round.
    pub(crate) peace: Duration,
}

/// A range of times, in milliseconds.
type Range = RangeInclusive<u64>;

/// Duration of a freeze. The longer ones outlast a worker's wait for MQTT acknowledgements; all
/// are shorter than two heartbeats of RabbitMQ.
const FROZEN: Range = 1_000..=6_000;
/// Time for which a part stays down after a kill.
const DEAD: Range = 0..=2_000;
/// Time for which Redis refuses writes.
const REFUSING: Range = 1_000..=8_000;
/// Duration of RabbitMQ's memory alarm.
const ALARMED: Range = 2_000..=25_000;
/// Time for which the MQTT broker acknowledges late, and the delay.
const SLOW: Range = 2_000..=8_000;
const LATE: Range = 100..=900;
/// Time for which it acknowledges nothing: less than workers wait for an acknowledgement, because after
/// that each further try of a device would be a repeat.
const MUTE: Range = 1_000..=4_000;
/// Time for which a provider is dead, slow, busy, or says goodbye. A freeze is shorter than two times the wait
/// for a provider's answer, so that a device is asked for twice at most meanwhile.
const PROVIDER: Range = 500..=2_000;
/// Requests after which a provider says goodbye.
const REQUESTS: RangeInclusive<u32> = 1..=20;
/// Bytes after which a provider cuts a connection: in its first frames, in an answer, between two.
const BYTES: Range = 0..=400;
/// Time in which it does that: less than the pause until a device is tried again, because after that the
/// second try could be cut too.
const CUTTING: Range = 200..=400;
/// Age of the oldest write that Redis loses.
const LOST: Range = 1_000..=3_000;
/// Time by which a clock is ahead. No clock is behind, so any two differ by less than the second of
/// `--clock-allowance`.
const AHEAD: Range = 0..=900;
/// The time between the beginnings of two faults of one round.
const APART: Range = 0..=3_000;
/// The pause between two rounds.
const PEACE: Range = 300..=3_000;
/// One round in this many has two faults.
const OVERLAPPING: u32 = 4;
/// Roughly how long it takes until pushes flow again.
const FLOWING: Duration = Duration::from_secs(2);
/// Number of kinds of faults.
pub(crate) const KINDS: usize = 23;

/// Rounds with this many faults altogether. Every [`KINDS`] faults in a row are of all kinds.
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

/// Roughly how long a schedule takes.
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
        let forget = Blow::Forget(millis(random, LOST));
        add(random, Part::Redis, forget, DEAD);
        add(random, Part::RabbitMq, Blow::Alarm, ALARMED);
        let slow = Blow::Answer(AckMode::Slow(millis(random, LATE)));
        add(random, Part::Mosquitto, slow, SLOW);
        add(random, Part::Mosquitto, Blow::Answer(AckMode::Mute), MUTE);
        let late = Blow::Late(millis(random, LATE));
        let goodbye = Blow::Goodbye(random.random_range(REQUESTS));
        let cut = Blow::Cut(random.random_range(BYTES));
        let of_providers = [
            (Blow::Kill, PROVIDER),
            (Blow::Freeze, FROZEN),
            (late, PROVIDER),
            (Blow::Busy, PROVIDER),
            (goodbye, PROVIDER),
            (cut, CUTTING),
        ];
        for (blow, away) in of_providers {
            let provider = Provider::ALL[random.random_range(0..Provider::ALL.len())];
            add(random, Part::Provider(provider), blow, away);
        }
        faults
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
        assert_eq!((others, distinct(&kinds)), (KINDS - 6, SHORT.faults), "{kinds:?}");
    }
}
