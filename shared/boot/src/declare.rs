//! [`settings!`](crate::settings!) declares a setting in one place: its help, flag, variable, default
//! and parser.

/// Declares settings: a struct of flags for clap, and a struct of their checked values.
///
/// A setting is its help as a comment, then `name: Type = ["VALUE", "default"] parser;`. The name with
/// dashes is the flag, in capitals behind `PUSH_` the variable; `VALUE` says in the help what it takes.
/// Without a default the type is an `Option`. A setting that holds a secret is declared as
/// `name or name_file: Option<Type> = ["VALUE"] parser;` and has a second flag, which names a file with
/// the value. `values` of the flags reads all of them, and adds everything that is wrong to the errors.
#[macro_export]
macro_rules! settings {
    (
        $(#[$of_struct:meta])*
        $vis:vis struct $flags:ident, $heading:literal => $values:ident {
            $(
                $(#[$of_field:meta])*
                $field:ident $(or $file:ident)?: $type:ty = [$value:literal $(, $default:expr)?] $parse:expr;
            )*
        }
    ) => {
        $(#[$of_struct])*
        #[derive(Debug, Clone, clap::Args)]
        #[command(next_help_heading = $heading)]
        $vis struct $flags {
            $(
                $(#[$of_field])*
                #[arg(
                    long,
                    env = $crate::settings::variable_of(stringify!($field)),
                    value_name = $value
                    $(, default_value = $default)?
                )]
                $field: Option<$crate::secret::SecretText>,
                $(
                    #[arg(
                        long,
                        env = $crate::settings::variable_of(stringify!($file)),
                        value_name = "FILE",
                        help = $crate::secret::help_of_file(stringify!($field))
                    )]
                    $file: Option<std::path::PathBuf>,
                )?
            )*
        }

        /// The checked values of the flags.
        #[allow(dead_code, reason = "what is checked with others, as two files, is read as text")]
        struct $values {
            $($field: $type,)*
        }

        #[allow(dead_code, reason = "most settings hold no secret")]
        impl $flags {
            /// Reads all of them; what is wrong goes into `errors`.
            fn values(&self, errors: &mut $crate::settings::ConfigErrors) -> Option<$values> {
                $(
                    let flag = $crate::settings::flag_of(stringify!($field));
                    let $field = $crate::settings!(
                        @read errors, &flag, self.$field, [$(self.$file)?], $parse $(, $default)?
                    );
                )*
                Some($values { $($field: $field?,)* })
            }

            /// Returns the files that hold secrets, each with its flag.
            $vis fn secret_files(&self) -> Vec<(String, std::path::PathBuf)> {
                let files: &[(&str, &Option<std::path::PathBuf>)] =
                    &[$($((stringify!($file), &self.$file),)?)*];
                let given = |(name, file): &(&str, &Option<std::path::PathBuf>)| {
                    Option::clone(file).map(|file| ($crate::settings::flag_of(name), file))
                };
                files.iter().filter_map(given).collect()
            }
        }
    };
    (@read $errors:ident, $flag:expr, $text:expr, [], $parse:expr, $default:expr) => {
        $errors.read($flag, $text.as_ref().map_or($default, |text| text.expose()), $parse)
    };
    (@read $errors:ident, $flag:expr, $text:expr, [], $parse:expr) => {
        match &$text {
            Some(text) => $errors.read($flag, text.expose(), $parse).map(Some),
            None => Some(None),
        }
    };
    (@read $errors:ident, $flag:expr, $text:expr, [$file:expr], $parse:expr) => {
        $errors.read_secret($flag, $text.as_ref(), $file.as_deref(), $parse)
    };
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, time::Duration};

    use clap::Parser;

    use crate::settings::{ConfigErrors, count, duration, text};

    settings! {
        /// Flags of a test.
        struct Flags, "Test" => Values {
            /// Wait for this time
            longest_wait: Duration = ["TIME", "5s"] duration;
            /// Take so many
            most: Option<u8> = ["N"] count(1, 9);
            /// Open with this key
            key or key_file: Option<String> = ["KEY"] text;
        }
    }

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        flags: Flags,
    }

    fn parse(flags: &[&str]) -> Cli {
        Cli::parse_from(["test"].iter().chain(flags))
    }

    fn values(flags: &[&str]) -> Result<Values, String> {
        let cli = parse(flags);
        let mut errors = ConfigErrors::default();
        let values = cli.flags.values(&mut errors);
        errors.finish(values).map_err(|errors| errors.to_string())
    }

    #[test]
    fn a_setting_has_a_flag_a_variable_and_a_default_and_all_mistakes_are_reported() {
        let defaults = values(&[]).unwrap();
        assert_eq!((defaults.longest_wait.as_secs(), defaults.most), (5, None));
        let given = values(&["--longest-wait=2s", "--most", "4"]).unwrap();
        assert_eq!((given.longest_wait.as_secs(), given.most), (2, Some(4)));
        let wrong = values(&["--longest-wait=2", "--most=10"]).err().unwrap();
        assert!(wrong.contains("--longest-wait (PUSH_LONGEST_WAIT): must be a time"), "{wrong}");
        assert!(
            wrong.contains("--most (PUSH_MOST): must be a whole number from 1 to 9"),
            "{wrong}"
        );
    }
    #[test]
    fn a_secret_is_given_itself_or_as_a_file_and_is_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        std::fs::write(&file, "hunter2\n").unwrap();
        let of_file = format!("--key-file={}", file.display());
        for flags in [["--key=hunter2"], [&*of_file]] {
            assert_eq!(values(&flags).unwrap().key.as_deref(), Some("hunter2"), "{flags:?}");
        }
        let wrong = values(&["--key=hunter2", &of_file]).err().unwrap();
        assert!(wrong.contains("--key (PUSH_KEY): is given, and --key-file too"), "{wrong}");
        assert!(!format!("{wrong}{:?}", parse(&["--key=hunter2"]).flags).contains("hunter2"));
        let files: Vec<(String, PathBuf)> = parse(&[&of_file]).flags.secret_files();
        assert_eq!(files, [("--key-file".to_owned(), file)]);
        assert!(parse(&[]).flags.secret_files().is_empty());
    }
}
