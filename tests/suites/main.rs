//! All suites in one program, so that a run of any of them links one program. `README.md` lists them.

mod clocks;
mod cluster;
mod delivery;
mod docs;
mod harness;
mod history;
mod hostile;
mod index;
mod ingest;
mod mqtt;
mod operator;
mod pace;
mod pushctl;
mod queue;
mod recovery;
mod removal;
mod scaled;
mod tls;
mod traces;
