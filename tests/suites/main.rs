//! All suites but those of `with_ingest.rs` in one program, so that a run of any of them links one program.
//! It has no code of the worker, `ingest` or `pushctl` in it: a change of those links only their own
//! programs anew. `README.md` lists the suites.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "helpers of tests fail as tests do, and say what they counted"
)]

mod audience;
mod clocks;
mod cluster;
mod console;
mod delivery;
mod docs;
mod harness;
mod history;
mod index;
mod mqtt;
mod operator;
mod pace;
mod phones;
mod pushctl;
mod queue;
mod recovery;
mod removal;
mod scaled;
mod tls;
mod traces;
