//! The lines of an input that were not taken: counted, and the first of them with why.

use crate::output::Output;

/// Bad lines that are reported one by one; the others are counted.
const MAX_REPORTED: usize = 1000;

/// A line that was not taken.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct BadLine {
    pub(crate) line: u64,
    pub(crate) reason: String,
}

/// The bad lines of a part of the input.
#[derive(Debug, Clone, Default)]
pub(crate) struct BadLines {
    pub(crate) count: u64,
    /// The first of them.
    pub(crate) reported: Vec<BadLine>,
}

impl BadLines {
    pub(crate) fn add(&mut self, line: u64, reason: String) {
        self.count += 1;
        if self.reported.len() < MAX_REPORTED {
            self.reported.push(BadLine { line, reason });
        }
    }

    pub(crate) fn append(&mut self, other: Self) {
        self.count += other.count;
        self.reported.extend(other.reported);
        self.sort();
        self.reported.truncate(MAX_REPORTED);
    }

    /// Puts those that are reported into the order of the input.
    pub(crate) fn sort(&mut self) {
        self.reported.sort_unstable_by_key(|bad| bad.line);
    }

    /// Tells the person at the terminal.
    pub(crate) fn tell(&self, out: Output) {
        for bad in &self.reported {
            out.note(format_args!("line {}: {}", bad.line, bad.reason));
        }
        let unreported = self.count - self.reported.len() as u64;
        if unreported > 0 {
            out.note(format_args!("… and {unreported} more bad lines"));
        }
    }
}
