//! `pushctl`: parses the command line and runs the command.

use std::process::ExitCode;

use push_boot::{command_line, log, runtime};
use pushctl::{cli::Cli, run};
use tokio::runtime::Builder;

fn main() -> ExitCode {
    let cli = command_line::parse::<Cli>();
    match Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime::run(runtime, run::main(cli)),
        Err(error) => log::failed(&format!("cannot start threads: {error}")),
    }
}
