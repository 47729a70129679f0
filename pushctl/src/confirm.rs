//! The question before a command that cannot be undone.

use std::io::{self, BufRead as _, IsTerminal as _};

use anyhow::{bail, ensure};

use crate::output::Output;

/// The flag that answers the question.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Confirmation {
    /// Do it without asking
    #[arg(long, short = 'y')]
    yes: bool,
}

impl Confirmation {
    /// Asks a person at the terminal. `loss` says what the command does and what is lost, as "removes app
    /// news with its 5 devices".
    ///
    /// # Errors
    /// If the answer is not yes, or there is no terminal and no `--yes`.
    pub(crate) async fn ask(
        self,
        loss: impl AsyncFnOnce() -> anyhow::Result<String>,
        out: Output,
    ) -> anyhow::Result<()> {
        if self.yes {
            return Ok(());
        }
        let loss = loss().await?;
        if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
            bail!("this {loss}, and there is no terminal to ask: add --yes to do it");
        }
        out.note(format_args!("This {loss}. Continue? [y/N]"));
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        ensure!(is_yes(&answer), "nothing was done");
        Ok(())
    }
}

fn is_yes(answer: &str) -> bool {
    ["y", "yes"].iter().any(|yes| answer.trim().eq_ignore_ascii_case(yes))
}

/// Writes a number with commas between thousands, and the noun in the right form.
pub(crate) fn count(number: u64, noun: &str) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    let plural = if number == 1 { "" } else { "s" };
    format!("{text} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_written_for_people() {
        for (number, text) in [
            (0, "0 devices"),
            (1, "1 device"),
            (999, "999 devices"),
            (1000, "1,000 devices"),
            (1_000_000, "1,000,000 devices"),
        ] {
            assert_eq!(count(number, "device"), text);
        }
    }

    #[test]
    fn only_yes_is_yes() {
        assert!(is_yes("y\n") && is_yes(" YES \r\n"));
        for no in ["", "\n", "n\n", "yep\n", "yy\n"] {
            assert!(!is_yes(no), "{no:?}");
        }
    }
}
