//! Prints results: text for people, or with `--json` one JSON document for programs.
//!
//! Only results go to standard output; progress and errors go to standard error. Whatever is printed
//! passes [`terminal`], because payloads, names and errors of servers come from outside.

use std::{
    env, fmt,
    io::{self, IsTerminal, Write},
};

use indicatif::{ProgressBar, ProgressStyle};
use push_boot::terminal;
use serde::Serialize;
use terminal_size::{Width, terminal_size_of};

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

    /// Returns the width of the terminal, if results or progress go to one or `COLUMNS` tells it.
    #[allow(clippy::unused_self, reason = "callers print through the output only")]
    pub fn columns(self) -> Option<usize> {
        columns()
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

fn columns() -> Option<usize> {
    let told = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let of_terminal = || {
        let size = terminal_size_of(io::stdout()).or_else(|| terminal_size_of(io::stderr()));
        size.map(|(Width(columns), _)| columns.into())
    };
    told.or_else(of_terminal).filter(|columns| *columns > 0)
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

/// The space between two columns.
const GAP: usize = 2;
/// The width that a wrapped column keeps on the narrowest terminal.
const LEAST_WRAPPED: usize = 30;

/// Rows of text in aligned columns. On a narrow terminal the columns that matter least are left out, and
/// then the last one is cut or wrapped; `--json` has everything. So an id never stands in the last column.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// The headings of columns that may be left out, in this order.
    optional: &'static [&'static str],
    /// True if the last column goes on in further lines instead of being cut.
    wraps: bool,
}

impl Table {
    /// Makes a table with these headings.
    pub fn new(head: &[&str]) -> Self {
        let rows = vec![head.iter().map(|&h| h.to_owned()).collect()];
        Self { rows, optional: &[], wraps: false }
    }

    /// Names the columns that a narrow terminal does not show, the first to be left out first.
    #[must_use]
    pub fn without_first(self, optional: &'static [&'static str]) -> Self {
        Self { optional, ..self }
    }

    /// Wraps the last column on a narrow terminal, for texts of which no word may be lost.
    #[must_use]
    pub fn wrapping(self) -> Self {
        Self { wraps: true, ..self }
    }

    /// Adds a row. No cell can end its line.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| terminal::line(&cell).into_owned()).collect());
    }
}

impl Table {
    /// Formats it within these columns, as far as that is possible.
    fn fitted(&self, columns: usize) -> String {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let width = |column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0);
        let mut shown: Vec<(usize, usize)> = (0..count).map(|at| (at, width(at))).collect();
        let total = |shown: &[(usize, usize)]| {
            (shown.iter().map(|(_, width)| width + GAP).sum::<usize>()).saturating_sub(GAP)
        };
        for name in self.optional {
            if total(&shown) <= columns {
                break;
            }
            shown.retain(|(at, _)| cells(*at).next().is_none_or(|head| head != name));
        }
        let excess = total(&shown).saturating_sub(columns);
        if let Some((at, last)) = shown.last_mut() {
            let head = cells(*at).next().map_or(0, |head| head.chars().count());
            let least = if self.wraps { LEAST_WRAPPED.min(*last) } else { head };
            *last = last.saturating_sub(excess).max(least);
        }
        let indent = total(&shown).saturating_sub(shown.last().map_or(0, |(_, last)| *last));
        let mut text = String::new();
        for row in &self.rows {
            let content = |at: usize| row.get(at).map_or("", |it| it);
            let mut further = Vec::new();
            let mut line: Vec<String> =
                shown.iter().map(|(at, width)| cut(content(*at), *width)).collect();
            if let (true, Some((at, width)), Some(last)) =
                (self.wraps, shown.last(), line.last_mut())
            {
                further = wrapped(content(*at), *width);
                *last = if further.is_empty() { String::new() } else { further.remove(0) };
            }
            text.push_str(line.join("  ").trim_end());
            text.push('\n');
            for more in further {
                text.push_str(&format!("{:indent$}{more}\n", ""));
            }
        }
        text
    }
}

/// Splits a text between its words into lines of this width; a longer word has a line of its own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Fills a cell up to its width, or cuts it.
fn cut(cell: &str, width: usize) -> String {
    if cell.chars().count() <= width {
        return format!("{cell:<width$}");
    }
    let kept: String = cell.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fitted(columns().unwrap_or(usize::MAX)))
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
    fn a_narrow_table_leaves_out_what_matters_least_and_then_cuts_its_last_column() {
        let mut table = Table::new(&["AT", "HOST", "REASON"]).without_first(&["HOST"]);
        table.row(["now".to_owned(), "a-host".to_owned(), "it was broken".to_owned()]);
        assert_eq!(table.fitted(26), "AT   HOST    REASON\nnow  a-host  it was broken\n");
        assert_eq!(table.fitted(25), "AT   REASON\nnow  it was broken\n");
        assert_eq!(table.fitted(14), "AT   REASON\nnow  it was b…\n");
        assert_eq!(table.fitted(1), "AT   REASON\nnow  it wa…\n");
    }

    #[test]
    fn a_narrow_table_that_wraps_loses_no_word_of_its_last_column() {
        let mut table = Table::new(&["WHAT", "FOUND"]).wrapping();
        table.row(["clock".to_owned(), "it is two minutes late; run a time service".to_owned()]);
        table.row(["disk".to_owned(), "free".to_owned()]);
        assert_eq!(
            table.fitted(37),
            "WHAT   FOUND\nclock  it is two minutes late; run a\n       time service\ndisk   free\n"
        );
        assert_eq!(table.fitted(1), table.fitted(37), "at least 30 columns are left");
        assert_eq!(table.fitted(80).lines().count(), 3);
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
