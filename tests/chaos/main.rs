//! Producers keep posting while `ingest`, workers, RabbitMQ, Redis, the MQTT broker and the servers of
//! providers are killed, frozen, made to refuse, to lose their last writes, to answer late or never, to cut
//! connections, or to have wrong clocks, again and again. Then every push must be accounted for.
//!
//! A seed decides the faults and the pushes. It is printed at the start and with every failure:
//!
//! ```sh
//! tests/run chaos --seed 4711 --rounds 100 --pushes 100000 --devices 1000000
//! ```
//!
//! The processes are not deterministic between the faults, so a seed that failed may have to be
//! run more than once to fail again.
//!
//! - `schedule`: the faults; `world`, `providers`: the servers and programs, and how faults strike them
//! - `load`: the pushes, the devices that they mean, and the producers
//! - `audit`: what is observed, and whether the guarantees held
//! - `run`: one run from its seed to its figures

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test ends where something is wrong, and a long run says how far it is"
)]

mod audit;
mod load;
mod providers;
mod run;
mod schedule;
mod world;

use crate::run::Wish;

/// The short run that is part of every test run: one fault of every kind but the freezes.
const SHORT: Wish = Wish { seed: 5_619_574, faults: 17, pushes: 1_500, devices: 20_000 };

fn setting<T: std::str::FromStr>(name: &str, otherwise: T) -> T {
    match std::env::var(name) {
        Ok(text) => text.parse().ok().expect("a number"),
        Err(_) => otherwise,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_killed_or_frozen_every_accepted_push_is_settled_and_every_device_served() {
    let wish = Wish {
        seed: setting("PUSH_CHAOS_SEED", SHORT.seed),
        faults: setting("PUSH_CHAOS_ROUNDS", SHORT.faults),
        pushes: setting("PUSH_CHAOS_PUSHES", SHORT.pushes),
        devices: setting("PUSH_CHAOS_DEVICES", SHORT.devices),
    };
    let Wish { seed, faults, pushes, devices } = wish;
    let replay = format!(
        "tests/run chaos --seed {seed} --rounds {faults} --pushes {pushes} --devices {devices}"
    );
    println!("{replay}");
    match run::run(wish).await {
        Ok(figures) => println!("\n{:<28}{seed}\n{figures}", "seed"),
        Err(wrong) => panic!("{wrong}\nreplay: {replay}"),
    }
}
