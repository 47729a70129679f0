//! `pushctl`: parse the command line, run the command, say what went wrong.

use std::process::ExitCode;

use clap::Parser as _;
use pushctl::cli::{self, Cli};

#[tokio::main]
async fn main() -> ExitCode {
    cli::main(Cli::parse()).await
}
