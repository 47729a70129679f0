//! Prints results: text for people, or with `--json` one JSON document for programs.
//!
//! Only results go to standard output; progress and errors go to standard error. Whatever is printed
//! passes [`terminal`], because payloads, names and errors of servers come from outside.

use std::{
    fmt,
    io::{self, IsTerminal, Write},
};

use indicatif::{ProgressBar, ProgressStyle};
use push_boot::terminal;
use serde::Serialize;

/// Prints results, notes and progress in the form that the command line asked for.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// Results as JSON, and no progress bar.
    pub json: bool,
}

impl Output {
    /// Prints a result, in the form that was asked for.
    ///
    /// # Errors
    /// If standard output is closed.
    pub fn result(self, text: impl fmt::Display, json: &impl Serialize) -> anyhow::Result<()> {
        let mut out = stdout();
        if self.json {
            writeln!(out, "{}", terminal::json(&serde_json::to_string(json)?))?;
        } else {
            let text = text.to_string();
            if !text.is_empty() {
                writeln!(out, "{}", terminal::text(text.trim_end()))?;
            }
        }
        out.flush()?;
        Ok(())
    }

    /// Prints a note to standard error.
    #[allow(clippy::unused_self, reason = "callers print through the output only")]
    pub fn note(self, text: impl fmt::Display) {
        // A closed standard error must not stop the command.
        let _ = writeln!(io::stderr().lock(), "{}", terminal::text(&text.to_string()));
    }

    /// Makes a progress bar; hidden if standard error is no terminal, or with `--json`.
    pub fn progress(self, total: Option<u64>, template: &str) -> ProgressBar {
        if self.json || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar
    }
}

/// Returns the standard output. A reader such as `head` closes it early; [`is_closed`] tells that
/// error from others.
pub fn stdout() -> impl Write {
    Stdout(io::stdout())
}

/// Returns true if the reader of standard output closed it: nothing is left to do or to report. A
/// broken connection has the same kind of error, but not this source.
pub fn is_closed(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|error| error.downcast_ref::<io::Error>()?.get_ref())
        .any(<dyn std::error::Error + Send + Sync>::is::<OutputClosed>)
}

#[derive(Debug, thiserror::Error)]
#[error("standard output was closed")]
struct OutputClosed;

struct Stdout(io::Stdout);

/// Marks an error of standard output whose reader is gone.
fn marked(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => io::Error::new(io::ErrorKind::BrokenPipe, OutputClosed),
        _ => error,
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(marked)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(marked)
    }
}

/// Rows of text in aligned columns.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes a table with these headings.
    pub fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|&h| h.to_owned()).collect()] }
    }

    /// Adds a row. No cell can end its line.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| terminal::line(&cell).into_owned()).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column| {
            let cells = self.rows.iter().filter_map(|row: &Vec<String>| row.get(column));
            cells.map(|cell: &String| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&format!("{cell:<width$}  "));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["APP", "STATE"]);
        table.row(["a-long-name".to_owned(), "enabled".to_owned()]);
        assert_eq!(table.to_string(), "APP          STATE\na-long-name  enabled\n");
    }

    #[test]
    fn a_closed_output_is_told_from_a_connection_that_broke() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_closed(&anyhow::Error::from(marked(broken())).context("while printing")));
        assert!(!is_closed(&anyhow::Error::from(broken())));
        assert!(!is_closed(&anyhow::Error::from(marked(io::ErrorKind::StorageFull.into()))));
    }

    #[test]
    fn a_cell_adds_no_row_and_commands_no_terminal() {
        let mut table = Table::new(&["REASON"]);
        table.row(["bad\nforged row\u{1b}[2J".to_owned()]);
        assert_eq!(table.to_string(), "REASON\nbad\\nforged row\\u{1b}[2J\n");
    }
}
