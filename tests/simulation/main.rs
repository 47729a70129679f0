//! The worker under every fault that the world allows, with the contract as oracle.
//!
//! The real worker runs against a queue, an index and a transport in memory, on one thread with
//! virtual time. Two drivers choose the faults and their steps (`choices`):
//! - At random: a seed decides everything, in worlds of some size. A failing seed is printed, and
//!   replays exactly; `PUSH_SIM_SCHEDULES` sets the number of schedules, and `PUSH_SIM_FAULTS` the
//!   most faults of each (2).
//! - Exhaustively: in small worlds, every list of up to so many faults, each at every step at which
//!   it makes sense. A failing list is printed, and replays exactly; `PUSH_SIM_DEPTH` sets the
//!   number of faults for all worlds, and `PUSH_SIM_WORLD` walks one of them.
//!
//! `PUSH_SIM_TRACE` prints each step of a replay, `PUSH_SIM_WITHOUT` names faults that are left
//! out.
//!
//! ```sh
//! PUSH_SIM_SEED=4711 cargo test -p push-simulation
//! PUSH_SIM_REPLAY="broadcast; 17:crash-after 23:forget-1" cargo test -p push-simulation
//! ```
//!
//! - `world`, `life`: what processes share, and what each has of its own; a step
//! - `fleet`, `posting`: the workers, and the pushes
//! - `faults`: what can go wrong, and what then happens
//! - `engines`: the queue, the index and the transport in memory
//! - `oracle`: whether a run kept the contract
//! - `drivers`: which schedules are run

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test ends where something is wrong, and says what it counted"
)]

mod drivers;
mod engines;
mod faults;
mod fleet;
mod life;
mod oracle;
mod posting;
mod world;

use drivers::{exhaustive, random, small};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

/// The number of random schedules, unless `PUSH_SIM_SCHEDULES` gives another one.
const SCHEDULES: u64 = 10_000;
/// A run ends after this many failures.
const FAILURES: usize = 5;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn whatever_fails_and_whenever_the_contract_holds_in_random_schedules() {
    if let Some(seed) = setting("PUSH_SIM_SEED") {
        random::run(seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        return;
    }
    let begun = Instant::now();
    let schedules = setting("PUSH_SIM_SCHEDULES").unwrap_or(SCHEDULES);
    let (next, wrong) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let work = || {
        while wrong.lock().unwrap().len() < FAILURES {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= schedules {
                return;
            }
            if let Err(what) = random::run(seed) {
                wrong.lock().unwrap().push(format!("PUSH_SIM_SEED={seed}: {what}"));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    println!("{schedules} random schedules in {:.0?}", begun.elapsed());
}

#[test]
fn whatever_fails_and_whenever_the_contract_holds_in_every_schedule_of_small_worlds() {
    if let Ok(schedule) = std::env::var("PUSH_SIM_REPLAY") {
        exhaustive::replay(&schedule).unwrap_or_else(|wrong| panic!("{schedule}: {wrong}"));
        return;
    }
    let depth = setting("PUSH_SIM_DEPTH");
    let worlds = match std::env::var("PUSH_SIM_WORLD") {
        Ok(name) => vec![small::Small::named(&name).expect("a world of this name")],
        Err(_) => small::ALL.to_vec(),
    };
    for small in worlds {
        let faults = depth.map_or(small.faults, |depth| depth as usize);
        exhaustive::walk(small, faults).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

#[test]
fn an_index_that_is_silent_through_a_hundred_hand_ons_costs_time_and_no_push() {
    for step in 0..8 {
        let schedule = format!("patient; {step}:silent-long");
        exhaustive::replay(&schedule).unwrap_or_else(|wrong| panic!("{schedule}: {wrong}"));
    }
}

#[test]
fn a_push_that_is_answered_late_is_sent_once_and_goes_on_after_a_crash() {
    for sent in 0..12 {
        let mut schedules = vec![format!("envelope; {sent}:late-answer")];
        let crashes = (sent + 1..sent + 12)
            .map(|crash| format!("envelope; {sent}:late-answer {crash}:crash-before"));
        schedules.extend(crashes);
        for schedule in schedules {
            exhaustive::replay(&schedule).unwrap_or_else(|wrong| panic!("{schedule}: {wrong}"));
        }
    }
}

#[test]
fn a_push_that_ends_its_workers_is_the_only_dead_letter() {
    exhaustive::replay("poison;").unwrap_or_else(|wrong| panic!("{wrong}"));
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..20 {
        let fingerprint = random::run(seed).unwrap();
        assert_eq!(random::run(seed), Ok(fingerprint), "seed {seed}");
        assert_ne!(random::run(seed + 1), Ok(fingerprint), "other seeds go other ways");
    }
}
