//! The command lines of all programs, for the manual, the completions and the reference of settings.
//! The programs read the same command lines, so these texts cannot differ from them.

use clap::{Command, ValueEnum};
use push_boot::command_line;

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

    /// Returns the command line of the program, with all commands and settings.
    pub fn command(self, pushctl: &Command) -> Command {
        match self {
            Self::Pushctl => pushctl.clone(),
            Self::Ingest => command_line::command::<push_ingest::Cli>(),
            Self::FanoutWorker => command_line::command::<push_fanout_worker::Cli>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use push_boot::settings::unknown_variables::{OF_ALL_PROGRAMS, add_variables};

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_program_knows_the_variables_of_all_programs() {
        let pushctl = command_line::command::<Cli>();
        let mut variables = Vec::new();
        Program::ALL.iter().for_each(|of| add_variables(&of.command(&pushctl), &mut variables));
        let variables: Vec<String> = BTreeSet::from_iter(variables).into_iter().collect();
        let list = format!("{}\n", variables.join("\n"));
        assert!(list == OF_ALL_PROGRAMS, "shared/boot/src/settings/variables.txt must be\n{list}");
    }
}
