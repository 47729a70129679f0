//! [`settings!`](crate::settings!) declares a setting in one place: its help, flag, variable, default
//! and parser.

/// Declares settings: a struct of flags for clap, and a struct of their checked values.
///
/// A setting is its help as a comment, then `name: Type = ["VALUE", "default"] parser;`. The name with
/// dashes is the flag, in capitals behind `PUSH_` the variable; `VALUE` says in the help what it takes.
/// Without a default the type is an `Option`. `values` of the flags reads all of them, and adds
/// everything that is wrong to the errors.
#[macro_export]
macro_rules! settings {
    (
        $(#[$of_struct:meta])*
        $vis:vis struct $flags:ident, $heading:literal => $values:ident {
            $($(#[$of_field:meta])* $field:ident: $type:ty = [$value:literal $(, $default:expr)?] $parse:expr;)*
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
                $field: Option<String>,
            )*
        }

        /// The checked values of the flags.
        #[allow(dead_code, reason = "what is checked with others, as two files, is read as text")]
        struct $values {
            $($field: $type,)*
        }

        impl $flags {
            /// Reads all of them; what is wrong goes into `errors`.
            fn values(&self, errors: &mut $crate::settings::ConfigErrors) -> Option<$values> {
                $(
                    let flag = $crate::settings::flag_of(stringify!($field));
                    let text = self.$field.as_deref();
                    let $field = $crate::settings!(@read errors, &flag, text, $parse $(, $default)?);
                )*
                Some($values { $($field: $field?,)* })
            }
        }
    };
    (@read $errors:ident, $flag:expr, $text:ident, $parse:expr, $default:expr) => {
        $errors.read($flag, $text.unwrap_or($default), $parse)
    };
    (@read $errors:ident, $flag:expr, $text:ident, $parse:expr) => {
        match $text {
            Some(text) => $errors.read($flag, text, $parse).map(Some),
            None => Some(None),
        }
    };
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use crate::settings::{ConfigErrors, count, duration};

    settings! {
        /// Flags of a test.
        struct Flags, "Test" => Values {
            /// Wait for this time
            longest_wait: Duration = ["TIME", "5s"] duration;
            /// Take so many
            most: Option<u8> = ["N"] count(1, 9);
        }
    }

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        flags: Flags,
    }

    fn values(flags: &[&str]) -> Result<Values, String> {
        let cli = Cli::parse_from(["test"].iter().chain(flags));
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
}
