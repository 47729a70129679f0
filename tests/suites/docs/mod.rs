//! The documentation is true of the code: its commands and examples run, and links and names lead
//! somewhere.
//!
//! - `walk_through`: the commands of the first push, run as they are written
//! - `api_examples`: the examples of the HTTP API in each language, run as they are written
//! - `references`: links, paths and tests that a page names, and the table of contents
//! - `settings`: settings and commands that a page names
//! - `warnings`: warnings of the programs, which name a section of the runbook
//! - `configuration`: the configuration reference, which `pushctl` writes
//! - `monitoring`: alerts and the dashboard, which ask for metrics that are described
//! - `dependencies`: licences and sources, which `deny.toml` allows
//! - `packaging`: systemd units and the Debian package
//! - `pages`: the pages, and what of their text can be checked

mod api_examples;
mod configuration;
mod dependencies;
mod monitoring;
mod packaging;
mod pages;
mod references;
mod settings;
mod walk_through;
mod warnings;
