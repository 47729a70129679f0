//! `pushctl`: parses the command line and runs the command.

use std::process::ExitCode;

use push_service::command_line;
use pushctl::cli::{self, Cli};

#[tokio::main]
async fn main() -> ExitCode {
    cli::main(command_line::parse::<Cli>()).await
}
