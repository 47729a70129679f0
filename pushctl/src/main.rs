//! `pushctl`: parses the command line and runs the command.

use std::process::ExitCode;

use clap::Parser as _;
use pushctl::cli::{self, Cli};

#[tokio::main]
async fn main() -> ExitCode {
    cli::main(Cli::parse()).await
}
