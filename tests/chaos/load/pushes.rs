//! The pushes of a run: push number `n` is a pure function of the seed and `n`.

use std::collections::BTreeSet;

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};

use crate::load::audience::{Audience, LISTENERS, Population, RARE_TARGETINGS, TARGETINGS};

/// Roughly how many devices all pushes to all devices reach together: it bounds the time of a run.
const REACH: usize = 400_000;
/// The least number of pushes to all devices.
const EVERYONES: usize = 3;
/// One push in this many goes to few devices by targeting.
const TARGETED: u32 = 40;
/// One push in this many has an `Idempotency-Key` and is posted through both `ingest`s.
const KEYED: u32 = 20;
/// One push in this many may expire before it is sent.
const BRIEF: u32 = 20;
/// The most devices that one push names.
const NAMED: usize = 12;
/// From this many devices on, rounds open with a wide targeting, and only one in [`SELDOM`] with a
/// push to all devices.
const LARGE: usize = 200_000;
const SELDOM: u32 = 10;
/// The time to live of pushes to named devices, in seconds: longer than a run.
const LONG: u64 = 24 * 3600;
/// The time to live of broadcasts, in seconds. One whose closing the index lost is closed only
/// after it expired, so it must expire within the run; faults delay a broadcast by less.
const BROADCAST: u64 = 60;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Push {
    pub(crate) number: u32,
    pub(crate) audience: Audience,
    /// The time to live, in seconds.
    pub(crate) time_to_live: u64,
    /// Posted through both `ingest`s at once with one key.
    pub(crate) key: Option<String>,
    /// The `ingest` that it is posted through.
    pub(crate) ingest: usize,
}

/// All pushes of a run.
///
/// Numbers below [`count`](Self::count) are the producers'. Then comes one broadcast for each
/// round, which opens it, so that the fault strikes in the middle of a broadcast. Higher numbers
/// are probes: pushes to all listeners and to no other device.
pub(crate) struct Pushes {
    seed: u64,
    pub(crate) count: u32,
    rounds: u32,
    /// The distance between two pushes to all devices, and between two wide targetings.
    stride: u32,
}

impl Pushes {
    pub(crate) fn new(seed: u64, count: u32, rounds: u32, population: &Population) -> Self {
        let wanted = (REACH / population.crowd().max(1)).max(EVERYONES);
        let everyones = u32::try_from(wanted).unwrap_or(u32::MAX).min(count / 50).max(1);
        Self { seed, count, rounds, stride: count.div_ceil(everyones) }
    }

    /// The number of the broadcast that opens a round.
    pub(crate) fn opening(&self, round: u32) -> u32 {
        self.count + round
    }

    /// Returns the number of pushes without the probes.
    pub(crate) fn planned(&self) -> u32 {
        self.count + self.rounds
    }

    pub(crate) fn get(&self, number: u32, population: &Population) -> Push {
        if let Some(after) = number.checked_sub(self.count) {
            let audience = if after < self.rounds {
                opening(after, population)
            } else {
                let listeners = (0..LISTENERS).collect();
                Audience::Named { crowd: Vec::new(), listeners, unknown: 0 }
            };
            let ingest = number as usize % 2;
            let time_to_live = lasting(&audience);
            return Push { number, audience, time_to_live, key: None, ingest };
        }
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(number);
        let random = &mut SmallRng::seed_from_u64(seed);
        let audience = if number % self.stride == self.stride / 2 {
            Audience::Everyone
        } else if number % self.stride == self.stride / 4 {
            Audience::Targeted(random.random_range(RARE_TARGETINGS..TARGETINGS))
        } else if random.random_ratio(1, TARGETED) {
            Audience::Targeted(random.random_range(0..RARE_TARGETINGS))
        } else {
            named(random, population)
        };
        let key = random.random_ratio(1, KEYED).then(|| format!("push-{number}"));
        let brief = random.random_ratio(1, BRIEF);
        let time_to_live = if brief { random.random_range(0..4) } else { lasting(&audience) };
        Push { number, audience, time_to_live, key, ingest: random.random_range(0..2) }
    }
}

/// The time to live of a push that should not expire.
fn lasting(audience: &Audience) -> u64 {
    if matches!(audience, Audience::Named { .. }) { LONG } else { BROADCAST }
}

/// All devices; in a large population only now and then.
fn opening(round: u32, population: &Population) -> Audience {
    if population.crowd() <= LARGE || round % SELDOM == 1 {
        Audience::Everyone
    } else {
        Audience::Targeted(RARE_TARGETINGS)
    }
}

fn named(random: &mut SmallRng, population: &Population) -> Audience {
    let mut some = |count: usize, of: usize| -> Vec<usize> {
        let picked: BTreeSet<usize> = (0..count).map(|_| random.random_range(0..of)).collect();
        picked.into_iter().collect()
    };
    let sizes = some(NAMED, NAMED);
    let crowd = some(sizes.len() / 2, population.crowd());
    let listeners = some(1 + sizes.len() / 4, LISTENERS);
    let unknown = random.random_range(0..3);
    Audience::Named { crowd, listeners, unknown }
}

impl Push {
    pub(crate) fn body(&self, population: &Population) -> Value {
        json!({
            "type": 2, "time_to_live": self.time_to_live,
            "data": {"n": self.number.to_string()},
            "condition": population.condition(&self.audience),
        })
    }

    /// Returns true if it may expire without a fault.
    pub(crate) fn is_brief(&self) -> bool {
        self.time_to_live < BROADCAST
    }

    pub(crate) fn is_named(&self) -> bool {
        matches!(self.audience, Audience::Named { .. })
    }
}

#[test]
fn one_seed_is_one_list_of_pushes() {
    let population = Population::new(7, 1000);
    let list = |seed| {
        let pushes = Pushes::new(seed, 500, 0, &population);
        (0..500).map(|number| pushes.get(number, &population)).collect::<Vec<_>>()
    };
    assert_eq!(list(1), list(1));
    assert_ne!(list(1), list(2));
    let count = |is: fn(&Push) -> bool| list(1).iter().filter(|push| is(push)).count();
    assert!(count(|push| push.audience == Audience::Everyone) >= 3);
    assert!(count(|push| push.key.is_some()) > 0 && count(Push::is_brief) > 0);
}
