//! The lines of an input that a command did not accept: all are counted, the first thousand are
//! reported with the reason.

use push_service::terminal;

use crate::output::Output;

/// Rejected lines that are reported one by one; the others are only counted.
const MAX_REPORTED: usize = 1000;

/// A line that was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct RejectedLine {
    /// Its number in the input, from 1.
    pub(crate) line: u64,
    pub(crate) reason: String,
}

/// The rejected lines of an input, or of a part of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct RejectedLines {
    pub(crate) count: u64,
    /// The first of them.
    pub(crate) reported: Vec<RejectedLine>,
}

impl RejectedLines {
    pub(crate) fn add(&mut self, line: u64, reason: String) {
        self.count += 1;
        if self.reported.len() < MAX_REPORTED {
            self.reported.push(RejectedLine { line, reason });
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
        self.reported.sort_unstable_by_key(|rejected| rejected.line);
    }

    /// Prints them to standard error.
    pub(crate) fn print(&self, out: Output) {
        for rejected in &self.reported {
            let reason = terminal::line(&rejected.reason);
            out.note(format_args!("line {}: {reason}", rejected.line));
        }
        let unreported = self.count - self.reported.len() as u64;
        if unreported > 0 {
            out.note(format_args!("… and {unreported} more bad lines"));
        }
    }
}
