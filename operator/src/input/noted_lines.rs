//! The lines of an input that were not accepted, or accepted with a warning: all are counted, the first
//! thousand are reported with the reason.

use serde::Serialize;

/// Lines that are reported one by one; the others are only counted.
const MAX_REPORTED: usize = 1000;

/// A line, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotedLine {
    /// Its number in the input, from 1.
    pub line: u64,
    /// The reason.
    pub reason: String,
}

/// The noted lines of an input, or of a part of it.
#[derive(Debug, Clone, Default)]
pub struct NotedLines {
    /// Their number.
    pub count: u64,
    /// The first of them.
    pub reported: Vec<NotedLine>,
}

impl NotedLines {
    /// Notes a line.
    pub fn add(&mut self, line: u64, reason: String) {
        self.count += 1;
        if self.reported.len() < MAX_REPORTED {
            self.reported.push(NotedLine { line, reason });
        }
    }

    /// Adds those of another part of the input.
    pub fn append(&mut self, other: Self) {
        self.count += other.count;
        self.reported.extend(other.reported);
        self.sort();
        self.reported.truncate(MAX_REPORTED);
    }

    /// Sorts the reported lines by their number: parts of an input end in any order.
    pub fn sort(&mut self) {
        self.reported.sort_unstable_by_key(|noted| noted.line);
    }
}
