//! The source of a run's choices: a seed, or a list of faults.
//!
//! Both drivers answer the same questions, so everything else in the simulation is the same for
//! both. A run is decided by its choices alone and replays exactly.

use std::{fmt::Write as _, time::Duration};

use rand::{Rng, RngExt, SeedableRng, rngs::SmallRng};

use crate::faults::{fault::Fault, set::Faults};

/// Faults, each with the number of the step at which it strikes, in the order of the steps.
pub(crate) type Schedule = Vec<(u32, Fault)>;

/// The most faults of a random schedule, unless `PUSH_SIM_FAULTS` gives another number.
const FAULTS: u64 = 2;
/// Duration of a step where a list of faults decides, in most worlds.
const STEP: Duration = Duration::from_millis(1);
/// The longest half of a step where a seed decides, in milliseconds.
pub(crate) const LONGEST_STEP: u64 = 6;

/// The choices of one run.
#[derive(Debug)]
pub(crate) enum Choices {
    /// A seed decides.
    Random(Random),
    /// A list of faults decides; every other choice has its default.
    Listed(Listed),
}

/// Choices by seed.
#[derive(Debug)]
pub(crate) struct Random {
    random: SmallRng,
    /// Steps in a thousand that meet a fault.
    rate: u32,
    /// Number of faults that may still strike.
    left: u32,
    /// True if none has struck yet.
    is_calm: bool,
}

/// Choices by list.
#[derive(Debug)]
pub(crate) struct Listed {
    faults: Schedule,
    next: usize,
    /// Duration of a search for devices, in addition to the time of a step.
    search: Duration,
    /// The faults that could have struck at each step; none unless recorded.
    could: Option<Vec<Faults>>,
    draws: u64,
}

impl Choices {
    /// Choices for this seed.
    pub(crate) fn random(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let rate = [10, 30, 100][random.random_range(0..3)];
        let most = u32::try_from(crate::setting("PUSH_SIM_FAULTS").unwrap_or(FAULTS));
        let left = random.random_range(0..=most.unwrap_or(u32::MAX - 1));
        Self::Random(Random { random, rate, left, is_calm: true })
    }

    /// Choices for this list, where a search takes so long. With `record`, the faults that could
    /// have struck at each step are recorded.
    pub(crate) fn listed(faults: Schedule, search: Duration, record: bool) -> Self {
        let could = record.then(Vec::new);
        Self::Listed(Listed { faults, next: 0, search, could, draws: 0 })
    }

    pub(crate) fn strike(&mut self, step: u32, can: impl FnOnce() -> Faults) -> Vec<Fault> {
        match self {
            Self::Random(Random { random, rate, left, is_calm }) => {
                if *left == 0 || random.random_range(0..1000) >= *rate {
                    return Vec::new();
                }
                // Beside another fault it is not clear what an eviction at a lost acknowledgement excuses.
                let fits = |fault: &Fault| {
                    *fault != Fault::AckLostEvicted && (*is_calm || !fault.is_alone())
                };
                let can: Vec<Fault> = can().each().filter(fits).collect();
                if can.is_empty() {
                    return can;
                }
                let fault = can[random.random_range(0..can.len())];
                *left = if fault.is_alone() { 0 } else { *left - 1 };
                *is_calm = false;
                vec![fault]
            }
            Self::Listed(Listed { faults, next, could, .. }) => {
                if let Some(could) = could {
                    could.push(can());
                }
                let mut struck = Vec::new();
                while let Some((_, fault)) = faults.get(*next).filter(|(at, _)| *at == step) {
                    struck.push(*fault);
                    *next += 1;
                }
                struck
            }
        }
    }

    /// Returns how long a step takes before its effect, and after it.
    pub(crate) fn step_takes(&mut self) -> (Duration, Duration) {
        match self {
            Self::Random(Random { random, .. }) => {
                let mut half = || Duration::from_millis(random.random_range(0..=LONGEST_STEP));
                (half(), half())
            }
            Self::Listed(_) => (STEP, Duration::ZERO),
        }
    }

    /// Returns how long the answer to a search takes, in addition to the time of a step.
    pub(crate) fn search_takes(&self) -> Duration {
        match self {
            Self::Random(_) => Duration::ZERO,
            Self::Listed(Listed { search, .. }) => *search,
        }
    }

    /// One of this many: the first, or by the seed another one, once in `odds` times.
    pub(crate) fn which(&mut self, of: usize, odds: u32) -> usize {
        match self {
            Self::Random(Random { random, .. }) => {
                if random.random_ratio(1, odds) {
                    random.random_range(0..of.max(1))
                } else {
                    0
                }
            }
            Self::Listed(_) => 0,
        }
    }

    /// A random number for the worker, different each time.
    pub(crate) fn number(&mut self) -> u64 {
        match self {
            Self::Random(Random { random, .. }) => random.next_u64(),
            Self::Listed(listed) => {
                listed.draws += 1;
                // The finaliser of SplitMix64: spreads consecutive numbers over the whole range.
                let mut z = listed.draws.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                z ^ (z >> 31)
            }
        }
    }

    /// Draws from the seed; none if a list decides.
    pub(crate) fn draw<T>(&mut self, draw: impl FnOnce(&mut SmallRng) -> T) -> Option<T> {
        match self {
            Self::Random(Random { random, .. }) => Some(draw(random)),
            Self::Listed(_) => None,
        }
    }

    /// The faults that could have struck at each step, if recorded.
    pub(crate) fn recorded(&mut self) -> Vec<Faults> {
        match self {
            Self::Listed(Listed { could: Some(could), .. }) => std::mem::take(could),
            _ => Vec::new(),
        }
    }

    /// Faults of the list whose step was never reached.
    pub(crate) fn not_struck(&self) -> &[(u32, Fault)] {
        match self {
            Self::Listed(Listed { faults, next, .. }) => &faults[*next..],
            Self::Random(_) => &[],
        }
    }
}

/// Writes a schedule as it can be given to a replay: `17:crash-after 23:forget-1`.
pub(crate) fn write(schedule: &[(u32, Fault)]) -> String {
    let mut text = String::new();
    for (step, fault) in schedule {
        let space = if text.is_empty() { "" } else { " " };
        // Writing to a string does not fail.
        let _ = write!(text, "{space}{step}:{fault}");
    }
    text
}

/// Reads a schedule.
///
/// # Errors
/// The text that cannot be read.
pub(crate) fn read(text: &str) -> Result<Schedule, String> {
    let one = |part: &str| {
        let (step, fault) = part.split_once(':').ok_or_else(|| format!("no fault in {part}"))?;
        let step = step.parse().map_err(|_| format!("no step in {part}"))?;
        Ok((step, fault.parse()?))
    };
    text.split_whitespace().map(one).collect()
}
