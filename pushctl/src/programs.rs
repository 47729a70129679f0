//! The command lines of all programs, for what is made of them: the manual, the completions, the
//! reference of settings. They are the ones that the programs read, so none of it can differ.

use clap::{Command, ValueEnum};
use push_boot::command_line;

use crate::cli::Cli;

/// A program of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Program {
    /// The operator's tool
    Pushctl,
    /// The HTTP service
    Ingest,
    /// The worker
    FanoutWorker,
}

impl Program {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Pushctl, Self::Ingest, Self::FanoutWorker];

    /// Its command line, with all commands and settings.
    pub fn command(self) -> Command {
        match self {
            Self::Pushctl => command_line::command::<Cli>(),
            Self::Ingest => command_line::command::<push_ingest::Cli>(),
            Self::FanoutWorker => command_line::command::<push_fanout_worker::Cli>(),
        }
    }
}
