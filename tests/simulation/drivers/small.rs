//! Worlds that are small enough to be walked completely.
//!
//! Each shows one shape of work: several pushes in one envelope, a broadcast in partitions, two
//! broadcasts side by side, a message that expires in the middle, one that is accepted twice
//! (to named devices, and as a broadcast; each with a long and a short time to live), an audience of
//! no device, an index that searches slowly, a broadcast over two transports of which one fails, and devices
//! whose providers give verdicts. Two devices are a batch.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use push_fanout_worker::{PlanLimits, WorkerSettings};
use push_model::{
    attributes::Attribute, ledger::RECALL_CHECK, message::Audience, targeting::Targeting,
};

use crate::{
    drivers::random::EARLIER,
    faults::fault::Fault,
    fleet,
    oracle::people::{device, of_failing},
    posting::{accept, named, publish, push},
    world::{World, lock},
};

/// Difference of clocks in a small world: a few steps.
const ALLOWANCE: Duration = Duration::from_millis(5);
/// The time to live of messages that do not expire in the middle.
const LIFE: Duration = Duration::from_mins(2);
/// A time to live that no message of a world outlives.
const LONG: Duration = Duration::from_hours(1);
/// A time to live that is longer than any fault takes, and shorter than it takes until the entry of
/// an earlier acceptance counts as overdue.
const SOON: Duration = Duration::from_secs(58);
/// A time to live that ends before a lost acceptance may be taken over.
const BRIEF: Duration = Duration::from_secs(5);
/// A time to live that ends when half of the devices are served.
const HALF: Duration = Duration::from_millis(9);
/// The duration of a slow search: afterwards what a worker knew about recalls is too old to be
/// relied on.
const SLOW_SEARCH: Duration = RECALL_CHECK.saturating_add(Duration::from_millis(100));
const NONE: Duration = Duration::ZERO;
/// Answers that devices get at so many first tries of each message.
type FirstAnswers = &'static [(&'static str, Fault, u32)];
/// `d0` has the lowest slot, with which the first batch of a broadcast begins.
const LATER: FirstAnswers = &[("d0", Fault::OneLater, 1)];
/// One answer of each kind.
const VERDICTS: FirstAnswers = &[
    ("d0", Fault::OneGone, 1),
    ("d1", Fault::OneThrottled, 1),
    ("d2", Fault::UnavailableTaken, 1),
    ("d3", Fault::OneGoneRenewed, 1),
    ("d4", Fault::OneRefused, 1),
];
/// As often as devices are tried, and each is tried once more.
const THROTTLED: FirstAnswers = &[("d0", Fault::OneThrottled, 5), ("d1", Fault::OneThrottled, 5)];
/// Devices of a batch.
const BATCH: usize = 2;

/// A small world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Small {
    /// Its name in a schedule that is replayed.
    pub(crate) name: &'static str,
    /// Number of faults that the walk of every test run places.
    pub(crate) faults: usize,
    devices: usize,
    partitions: usize,
    /// Duration of a search for devices, in addition to the time of a step.
    pub(crate) search: Duration,
    /// Every other device has the transport whose provider fails.
    mixed: bool,
    first_answers: FirstAnswers,
    post: fn(&World),
}

/// The world that each is a variation of.
const USUAL: Small = Small {
    name: "",
    faults: 1,
    devices: 4,
    partitions: 1,
    search: NONE,
    mixed: false,
    first_answers: LATER,
    post: broadcast,
};

/// Every small world: those first that are walked soonest, so that a fault is found soon.
pub(crate) const ALL: [Small; 16] = [
    Small { name: "patient", faults: 0, post: patient, ..USUAL },
    Small { name: "poison", faults: 0, devices: 5, partitions: 2, post: poison, ..USUAL },
    Small { name: "no-device", devices: 0, ..USUAL },
    Small { name: "expiring", post: expiring, ..USUAL },
    Small { name: "repeated", devices: 2, post: repeated, ..USUAL },
    Small { name: "repeated-soon", devices: 2, post: repeated_soon, ..USUAL },
    Small { name: "repeated-briefly", faults: 0, devices: 2, post: repeated_briefly, ..USUAL },
    Small { name: "envelope", post: envelope, ..USUAL },
    Small { name: "slow", search: SLOW_SEARCH, ..USUAL },
    Small { name: "broadcast", devices: 5, partitions: 2, ..USUAL },
    Small { name: "retried", devices: 3, partitions: 2, post: retried, ..USUAL },
    Small { name: "two-broadcasts", devices: 3, post: two_broadcasts, ..USUAL },
    Small { name: "retried-soon", devices: 3, partitions: 2, post: retried_soon, ..USUAL },
    Small { name: "two-transports", mixed: true, post: broadcast_and_named, ..USUAL },
    Small { name: "throttled", faults: 0, mixed: true, first_answers: THROTTLED, ..USUAL },
    Small { name: "verdicts", devices: 5, mixed: true, first_answers: VERDICTS, ..USUAL },
];

impl Small {
    pub(crate) fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|world| world.name == name)
    }

    pub(crate) fn settings(&self) -> WorkerSettings {
        let plan = PlanLimits { partitions: self.partitions, min_slots: 1 };
        WorkerSettings { plan, ..fleet::settings(BATCH, ALLOWANCE) }
    }

    /// Registers its devices, starts its workers and posts its pushes.
    pub(crate) fn begin(&self, world: &Arc<World>) {
        let now = world.now();
        for number in 0..self.devices {
            let country = if number % 2 == 0 { "CN" } else { "SG" };
            let device = device(&format!("d{number}"), country);
            let device = if self.mixed && number % 2 == 0 { of_failing(device) } else { device };
            lock(&world.store).register(device, now, now.minus(EARLIER));
        }
        for (device, answer, tries) in self.first_answers {
            let device = device.parse().expect("a client id");
            lock(&world.inbox).first.insert(device, (*answer, *tries));
        }
        for _ in 0..2 {
            fleet::start(world);
        }
        (self.post)(world);
    }
}

fn post(world: &World, pushes: Vec<(u128, Audience, Duration)>) {
    let mut jobs = Vec::new();
    for (number, audience, time_to_live) in pushes {
        let mut push = push(number, audience);
        jobs.push(accept(world, &mut push, world.now(), time_to_live));
        lock(&world.pushes).push(push);
    }
    publish(world, &jobs);
}

/// Three pushes to named devices in one envelope.
fn envelope(world: &World) {
    let pushes = vec![
        (1, named(&["d0", "d1", "d2"]), LIFE),
        (2, named(&["d1", "unknown"]), LIFE),
        (3, named(&["d3"]), LIFE),
    ];
    post(world, pushes);
}

/// Pushes that outlive any silence of the index.
fn patient(world: &World) {
    world.is_soon_enough.store(true, Ordering::Relaxed);
    post(world, vec![(1, named(&["d0", "d1", "d2"]), LONG), (2, named(&["d1", "unknown"]), LONG)]);
    post(world, vec![(3, Audience::All, LONG)]);
}

/// A push that ends each process that sends it, in an envelope with two others, and beside other
/// envelopes that the same processes hold.
fn poison(world: &World) {
    let others = |number| (number, named(&["d0", "d3"]), LONG);
    post(world, vec![others(1), (2, named(&["d1"]), LONG), others(3)]);
    *lock(&world.poison) = lock(&world.pushes).get(1).map(|push| push.id);
    post(world, vec![(4, Audience::All, LONG)]);
    post(world, vec![others(5)]);
}

fn broadcast(world: &World) {
    post(world, vec![(1, Audience::All, LIFE)]);
}

/// A broadcast over a transport that works and one that fails, and a push to a device of each.
fn broadcast_and_named(world: &World) {
    post(world, vec![(1, Audience::All, LIFE), (2, named(&["d0", "d1"]), LIFE)]);
}

/// Two broadcasts of one partition each, in two envelopes.
fn two_broadcasts(world: &World) {
    let mut targeting = Targeting::all_devices();
    targeting.set(Attribute::Country, vec!["CN".into()]);
    post(world, vec![(1, Audience::All, LIFE)]);
    post(world, vec![(2, Audience::Targeting(targeting), LIFE)]);
}

fn expiring(world: &World) {
    post(world, vec![(1, Audience::All, HALF)]);
}

/// A broadcast that expires before any worker sees it, as does the producer's second try.
fn retried(world: &World) {
    twice(world, Audience::All, HALF);
}

/// A push that expires before any worker sees it, and the producer's second try.
fn repeated(world: &World) {
    twice(world, named(&["d0", "d1"]), LIFE);
}

/// The same, where the second try has no time for waiting until the first one is overdue.
fn repeated_soon(world: &World) {
    world.is_soon_enough.store(true, Ordering::Relaxed);
    twice(world, named(&["d0", "d1"]), SOON);
}

/// The same, where the second try has no time for waiting until a lost first one may be taken over.
/// The first one is not lost, so its worker closes its entry soon enough.
fn repeated_briefly(world: &World) {
    world.is_soon_enough.store(true, Ordering::Relaxed);
    twice(world, named(&["d0", "d1"]), BRIEF);
}

/// The same as a broadcast.
fn retried_soon(world: &World) {
    world.is_soon_enough.store(true, Ordering::Relaxed);
    twice(world, Audience::All, SOON);
}

fn twice(world: &World, audience: Audience, time_to_live: Duration) {
    let mut push = push(1, audience);
    let first = accept(world, &mut push, world.now(), Duration::from_millis(1));
    let second = accept(world, &mut push, world.now(), time_to_live);
    lock(&world.pushes).push(push);
    publish(world, &[first]);
    publish(world, &[second]);
}
