//! Reads the command line and the environment with clap. Neither help nor errors print a value that
//! may be a password.
//!
//! An empty environment variable counts as unset. A compose file or a template that passes a
//! setting on sets the variable to an empty value if it is not set outside.
//!
//! By default, clap shows the values of environment variables in its help and repeats wrong values
//! in its errors. Both are turned off here, for all settings.

use std::{
    env,
    ffi::OsString,
    io::{self, Write as _},
    process,
};

use clap::{
    Command, Error, Parser,
    builder::Resettable,
    error::{ContextKind, ContextValue, ErrorKind},
};

use super::{
    config_file::{self, Given},
    older_words, unknown_variables,
};
use crate::values::may_hold_secret;

/// The exit code of a wrong command line, as clap has it.
const USAGE_ERROR: i32 = 2;

/// Replaces a value that may hold a password in an error.
const NOT_SHOWN: &str = "…";

/// Reads the command line of this process, its environment, and the file of settings that they name.
/// Prints help, version or an error and ends the process where clap does.
pub fn parse<C: Parser>() -> C {
    let arguments: Vec<OsString> = env::args_os().collect();
    let given = Given { arguments: &arguments, variable: &|name| env::var_os(name) };
    let old = older_words::given(given);
    if !old.is_empty() {
        let problem = format!("older names of settings:\n  {}\n", old.join("\n  "));
        Error::raw(ErrorKind::UnknownArgument, problem).exit();
    }
    let variables = env::vars_os().filter(|(_, value)| !value.is_empty());
    let names = variables.map(|(name, _)| name.to_string_lossy().into_owned());
    let unknown = unknown_variables::warnings(&command::<C>(), names);
    let (command, warnings) = config_file::apply(command::<C>(), given).unwrap_or_else(|problem| {
        // A wrong file must not hide the help, which says how to fix it.
        let command = without_empty(command::<C>(), given);
        match command.try_get_matches_from(&arguments) {
            Err(help) if !help.use_stderr() => without_secrets(help).exit(),
            _ => Error::raw(ErrorKind::ValueValidation, format!("{problem}\n")).exit(),
        }
    });
    for warning in warnings.into_iter().chain(unknown) {
        // A closed standard error must not stop the program.
        let _ = writeln!(io::stderr().lock(), "warning: {warning}");
    }
    let command = without_empty(command, given);
    let matches = command.clone().try_get_matches_from(&arguments);
    let parsed = matches.and_then(|mut matches| C::from_arg_matches_mut(&mut matches));
    parsed.unwrap_or_else(|error| {
        if let Some(help) = help_for(&error, command, &arguments) {
            let _ = write!(io::stderr().lock(), "{help}");
            exit_as_clap_does();
        }
        without_secrets(error).exit()
    })
}

#[allow(
    clippy::disallowed_methods,
    reason = "clap ends the process here too, before anything was begun"
)]
fn exit_as_clap_does() -> ! {
    process::exit(USAGE_ERROR)
}

/// Returns the short help of a command that was given without its subcommand: it lists the subcommands. clap does
/// that by itself only as long as no environment variable gives a flag.
fn help_for(error: &Error, command: Command, arguments: &[OsString]) -> Option<String> {
    if error.kind() != ErrorKind::MissingSubcommand {
        return None;
    }
    let arguments = arguments.iter().cloned().chain([OsString::from("-h")]);
    let help = command.try_get_matches_from(arguments).err()?;
    (help.kind() == ErrorKind::DisplayHelp).then(|| help.to_string())
}

/// Returns the command line of a program as [`parse`] reads it, for its manual and its reference.
pub fn command<C: Parser>() -> Command {
    without_values(config_file::with_flag(C::command()))
}

/// Hides the values of environment variables in the help of a command.
fn without_values(command: Command) -> Command {
    command.mut_args(|arg| arg.hide_env_values(true)).mut_subcommands(without_values)
}

/// Separates empty variables from the flags of a command. clap would take an empty variable for a
/// value, and has already read it when the command is built.
fn without_empty(command: Command, given: Given<'_>) -> Command {
    let command = command.mut_args(|argument| {
        let name = argument.get_env().map(|name| name.to_string_lossy().into_owned());
        let value = name.and_then(|name| (given.variable)(&name));
        match value {
            Some(value) if value.is_empty() => argument.env(Resettable::Reset),
            _ => argument,
        }
    });
    command.mut_subcommands(|command| without_empty(command, given))
}

/// Removes values that may hold a password from an error.
fn without_secrets(mut error: Error) -> Error {
    let hidden: Vec<ContextKind> = error
        .context()
        .filter(|(_, value)| matches!(value, ContextValue::String(text) if may_hold_secret(text)))
        .map(|(kind, _)| kind)
        .collect();
    for kind in hidden {
        error.insert(kind, ContextValue::String(NOT_SHOWN.to_owned()));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    #[command(name = "program")]
    struct Cli {
        #[arg(long)]
        count: Option<u8>,
        #[arg(long, env = "PUSH_FIRST", conflicts_with = "second")]
        first: Option<String>,
        #[arg(long, env = "PUSH_SECOND", default_value = "2")]
        second: String,
    }

    #[test]
    fn an_empty_variable_is_parted_from_its_flag_and_others_are_not() {
        let variable = |name: &str| (name == "PUSH_FIRST").then(OsString::new);
        let given = Given { arguments: &[], variable: &variable };
        let command = without_empty(<Cli as clap::CommandFactory>::command(), given);
        let variables: Vec<_> = command.get_arguments().filter_map(clap::Arg::get_env).collect();
        assert_eq!(variables, ["PUSH_SECOND"]);
    }

    #[test]
    fn a_command_without_its_subcommand_lists_them_also_when_a_variable_gives_a_flag() {
        let command = || {
            let app = Command::new("app").subcommand_required(true).arg_required_else_help(true);
            let app = app.subcommand(Command::new("list").about("List all"));
            let dir = clap::Arg::new("dir").long("dir").global(true);
            Command::new("program").subcommand(app).arg(dir)
        };
        let arguments: Vec<OsString> = ["program", "app", "--dir", "d"].map(Into::into).into();
        let error = command().try_get_matches_from(&arguments).unwrap_err();
        let help = help_for(&error, command(), &arguments).unwrap();
        assert!(help.contains("list") && help.contains("List all"), "{help}");
        let arguments = ["program", "app", "lst"].map(OsString::from);
        let error = command().try_get_matches_from(&arguments).unwrap_err();
        assert_eq!(help_for(&error, command(), &arguments), None);
    }

    fn error_of(argument: &str) -> String {
        let matches = without_values(<Cli as clap::CommandFactory>::command())
            .try_get_matches_from(["program", argument]);
        without_secrets(matches.unwrap_err()).to_string()
    }

    #[test]
    fn an_error_repeats_a_wrong_value_unless_it_may_hold_a_password() {
        assert!(error_of("--count=many").contains("'many' for '--count <COUNT>'"));
        for argument in ["--count=amqp://u:hunter2@h", "amqp://u:hunter2@h", "--count=u:hunter2@h"]
        {
            let error = error_of(argument);
            assert!(error.contains(NOT_SHOWN) && !error.contains("hunter2"), "{error}");
        }
    }
}
