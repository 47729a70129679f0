//! One random schedule: messages, workers and faults, then a quiet time, then the oracle.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use push_model::{
    app::App,
    attributes::Attribute,
    ids::ClientId,
    message::Audience,
    pace::{BURST, NAMED_AHEAD, max_batch},
    secret::Secret,
    targeting::Targeting,
    time::UnixMillis,
};
use push_tests::invariants::{Rule, Violation};
use rand::{RngExt, rngs::SmallRng};
use tokio::time::sleep;

use crate::{
    faults::choices::{Choices, LONGEST_STEP},
    faults::fault::Fault,
    fleet,
    oracle::judge::judge,
    oracle::people::{Push, device, of_failing},
    posting::{accept, publish, push},
    world::{World, lock},
};

/// Devices of a batch.
const BATCH: usize = 3;
/// The clock allowance, and half of it, by which the clock of a program that accepts pushes or
/// registers devices may differ from the world's.
const ALLOWANCE: Duration = Duration::from_millis(100);
/// The time to live of most messages.
const LIFE: Duration = Duration::from_mins(5);
/// Time that a world may take until nothing is left to do.
const PEACE: Duration = Duration::from_mins(30);
/// Time for which the devices are registered when a world begins: more than clocks differ by.
pub(crate) const EARLIER: Duration = Duration::from_secs(1);
/// One schedule in this many has an app with a pace.
const PACED: u32 = 20;
/// The longest time from the grant of a batch to its hand-over without a fault: two steps.
const TAKE_TO_SEND: Duration = Duration::from_millis(3 * LONGEST_STEP);

/// Runs one schedule; returns a fingerprint of everything that happened.
///
/// # Errors
/// The violations that the oracle found.
pub(crate) fn run(seed: u64) -> Result<u64, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(simulate(seed))
}

async fn simulate(seed: u64) -> Result<u64, String> {
    let world = World::new(Choices::random(seed), fleet::settings(BATCH, ALLOWANCE));
    let producer = Producer(world.clone());
    producer.populate();
    let pace = producer.pace();
    sleep(Duration::from_millis(1)).await;
    for _ in 0..2 {
        fleet::start(&world);
    }
    for _ in 0..producer.draw(|r| r.random_range(1..=4)) {
        producer.post();
        let pause = producer.draw(|r| r.random_range(0..300));
        sleep(Duration::from_millis(pause)).await;
    }
    let mut violations = Vec::new();
    if !world.quiet(PEACE).await {
        violations.push(Violation::new(Rule::NoEnd, lock(&world.broker).rest()));
    }
    violations.extend(judge(&world));
    violations.extend(pace.and_then(|pace| judge_pace(&world, pace)));
    world.end();
    let Some(first) = violations.first() else { return Ok(world.fingerprint()) };
    Err(format!("{first}\n{} in all, after {}", violations.len(), world.struck()))
}

/// The producers, and the devices that are registered from the beginning.
struct Producer(Arc<World>);

impl Producer {
    fn draw<T>(&self, draw: impl FnOnce(&mut SmallRng) -> T) -> T {
        lock(&self.0.choices).draw(draw).expect("a seed decides")
    }

    fn chance(&self, numerator: u32, denominator: u32) -> bool {
        self.draw(|r| r.random_ratio(numerator, denominator))
    }

    /// The time by another machine's clock.
    fn stamp(&self) -> UnixMillis {
        let half = ALLOWANCE.as_millis() as u64 / 2;
        let skew = self.draw(|r| r.random_range(0..half));
        UnixMillis(self.0.now().0 + skew - half / 2)
    }

    fn populate(&self) {
        for n in 0..self.draw(|r| r.random_range(0..24)) {
            let country = if self.chance(1, 2) { "CN" } else { "SG" };
            let (now, born) = (self.0.now(), self.stamp().minus(EARLIER));
            let device = device(&format!("d{n}"), country);
            let device = if n % 3 == 2 { of_failing(device) } else { device };
            lock(&self.0.store).register(device, now, born);
        }
    }

    /// Gives the app a pace in some schedules: one that its messages exceed.
    fn pace(&self) -> Option<NonZeroU32> {
        if !self.chance(1, PACED) {
            return None;
        }
        let pace = NonZeroU32::new(self.draw(|r| r.random_range(1..=8)));
        let secret = Secret::new(&"x".repeat(Secret::MIN_LEN)).expect("a secret");
        let app = App::new(self.0.app.clone(), &secret, self.0.now());
        lock(&self.0.store).app = Some(App { pace, ..app });
        pace
    }

    /// Accepts pushes in one envelope; sometimes one of them twice (a retry with an idempotency
    /// key).
    fn post(&self) {
        let mut envelope = Vec::new();
        for _ in 0..self.draw(|r| r.random_range(1..=3)) {
            let mut push = self.push();
            let copies = if self.chance(1, 6) { 2 } else { 1 };
            let time_to_live = match self.draw(|r| r.random_range(0..10)) {
                0 => 0,
                1 | 2 => self.draw(|r| r.random_range(1..400)),
                _ => LIFE.as_millis() as u64,
            };
            for number in 0..copies {
                let time_to_live = Duration::from_millis(time_to_live);
                let job = accept(&self.0, &mut push, self.stamp(), time_to_live);
                if number == 0 {
                    envelope.push(job);
                } else {
                    publish(&self.0, &[job]);
                }
            }
            lock(&self.0.pushes).push(push);
        }
        publish(&self.0, &envelope);
    }

    fn push(&self) -> Push {
        let people = lock(&self.0.store).people.clone();
        let audience = match self.draw(|r| r.random_range(0..3)) {
            0 => Audience::All,
            1 => {
                let mut targeting = Targeting::all_devices();
                targeting.set(Attribute::Country, vec!["CN".into()]);
                Audience::Targeting(targeting)
            }
            _ => {
                let known = people.iter().filter(|_| self.chance(1, 2));
                let known = known.map(|person| person.device.client_id.clone());
                let unknown: ClientId = "unknown".parse().expect("a client id");
                Audience::Clients(known.chain([unknown]).collect())
            }
        };
        push(self.draw(RngExt::random), audience)
    }
}

/// The oracle of the pace: in no window of time were more devices handed to the transport than the
/// bound in [`push_model::pace`] allows. A wrong clock makes the window longer, as does a fault
/// that stretches a step between grant and hand-over.
fn judge_pace(world: &World, pace: NonZeroU32) -> Option<Violation> {
    let off = [Fault::ClockAhead, Fault::ClockBehind].map(|fault| world.has_struck(fault));
    let clocks_differ = ALLOWANCE * off.map(u32::from).iter().sum();
    let inbox = lock(&world.inbox);
    let batches = inbox.batches();
    for (first, (from, _)) in batches.iter().enumerate() {
        let mut devices = 0;
        for (until, count) in batches.iter().skip(first) {
            devices += count;
            let time = until.since(*from) + TAKE_TO_SEND + BURST + NAMED_AHEAD + clocks_differ;
            let most =
                time.as_millis() * u128::from(pace.get()) + 1000 * u128::from(max_batch(pace));
            if 1000 * devices as u128 > most && !world.was_stretched() {
                let seen = format!("{devices} devices at a pace of {pace}: {batches:?}");
                return Some(Violation::new(Rule::OverPace, seen));
            }
        }
    }
    None
}
