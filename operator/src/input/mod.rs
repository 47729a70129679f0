//! Reads the input of a long operation.
//!
//! - `line_reader`: reads it line by line in bounded memory
//! - `noted_lines`: the lines that were not accepted, or accepted with a warning

mod line_reader;
mod noted_lines;

pub use self::{
    line_reader::{Line, LineReader},
    noted_lines::{NotedLine, NotedLines},
};
