//! The lines of an input that a command did not accept, or accepted with a warning: all are counted,
//! the first thousand are reported with the reason.

use push_boot::terminal;

use crate::output::Output;

/// Lines that are reported one by one; the others are only counted.
const MAX_REPORTED: usize = 1000;

/// A line, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct NotedLine {
    /// Its number in the input, from 1.
    pub(crate) line: u64,
    pub(crate) reason: String,
}

/// The noted lines of an input, or of a part of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct NotedLines {
    pub(crate) count: u64,
    /// The first of them.
    pub(crate) reported: Vec<NotedLine>,
}

impl NotedLines {
    pub(crate) fn add(&mut self, line: u64, reason: String) {
        self.count += 1;
        if self.reported.len() < MAX_REPORTED {
            self.reported.push(NotedLine { line, reason });
        }
    }

    pub(crate) fn append(&mut self, other: Self) {
        self.count += other.count;
        self.reported.extend(other.reported);
        self.sort();
        self.reported.truncate(MAX_REPORTED);
    }

    /// Sorts the reported lines by their number: parts of an input end in any order.
    pub(crate) fn sort(&mut self) {
        self.reported.sort_unstable_by_key(|noted| noted.line);
    }

    /// Prints them to standard error; `what` names those beyond the reported ones.
    pub(crate) fn print(&self, what: &str, out: Output) {
        for noted in &self.reported {
            let reason = terminal::line(&noted.reason);
            out.note(format_args!("line {}: {reason}", noted.line));
        }
        let unreported = self.count - self.reported.len() as u64;
        if unreported > 0 {
            out.note(format_args!("… and {unreported} more {what}"));
        }
    }
}
