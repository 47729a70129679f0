//! The worker's logic under many thousand bad days.
//!
//! The real worker runs against a queue, an index and a transport in memory, on one thread with
//! virtual time. A seed decides everything: which messages there are, which process dies at
//! which step, which answer is lost, what is delivered late, twice and out of order. A failing
//! seed is printed, and replays exactly:
//!
//! ```sh
//! PUSH_SIM_SEED=4711 cargo test -p push-tests --test simulation
//! ```
//!
//! `PUSH_SIM_SCHEDULES` sets the number of schedules (100,000).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

mod index;
mod queue;
mod schedule;
mod transport;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};

/// Schedules of a run that names no number.
const SCHEDULES: u64 = 100_000;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn whatever_dies_and_whenever_every_message_is_settled_and_repeats_stay_within_the_bound() {
    if let Some(seed) = setting("PUSH_SIM_SEED") {
        schedule::run(seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        return;
    }
    let schedules = setting("PUSH_SIM_SCHEDULES").unwrap_or(SCHEDULES);
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= schedules {
                        return;
                    }
                    if let Err(wrong) = schedule::run(seed) {
                        panic!("PUSH_SIM_SEED={seed}: {wrong}");
                    }
                }
            });
        }
    });
    let ran = next.load(Ordering::Relaxed).saturating_sub(threads as u64);
    assert_eq!(ran, schedules, "every schedule ran");
    println!("{schedules} schedules, all settled");
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..20 {
        let fingerprint = schedule::run(seed).unwrap();
        assert_eq!(schedule::run(seed), Ok(fingerprint), "seed {seed}");
        assert_ne!(schedule::run(seed + 1), Ok(fingerprint), "other seeds go other ways");
    }
}
