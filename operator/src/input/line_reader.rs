//! Reads an input line by line. A line longer than a given limit is skipped, so that no input can
//! exhaust the memory.

use std::io::{self, BufRead, BufReader, Read};

use push_model::text::without_mark;

/// The read buffer, in bytes.
const READ_BUFFER: usize = 1 << 20;

/// Reads lines of bounded length.
#[derive(Debug)]
pub struct LineReader<R> {
    input: BufReader<R>,
    max_line: u64,
    line: Vec<u8>,
}

/// A line as it was read.
#[derive(Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The line with its line end and without the byte order mark that it may begin with; `None` if it is
    /// longer than the limit.
    pub text: Option<&'a [u8]>,
    /// Its length in the input, line end included.
    pub bytes: u64,
}

impl<R: Read> LineReader<R> {
    /// Reads lines of up to `max_line` bytes, line end included.
    pub fn new(input: R, max_line: u64) -> Self {
        Self { input: BufReader::with_capacity(READ_BUFFER, input), max_line, line: Vec::new() }
    }

    /// Returns the next line; `None` at the end of the input.
    ///
    /// # Errors
    /// If the input cannot be read.
    pub fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        let limited = &mut self.input.by_ref().take(self.max_line);
        let bytes = limited.read_until(b'\n', &mut self.line)? as u64;
        if bytes == 0 {
            return Ok(None);
        }
        if bytes < self.max_line || self.line.last() == Some(&b'\n') {
            return Ok(Some(Line { text: Some(without_mark(&self.line)), bytes }));
        }
        let rest = self.input.skip_until(b'\n')? as u64;
        Ok(Some(Line { text: None, bytes: bytes + rest }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_LINE: u64 = 16 * 1024;

    #[test]
    fn a_line_that_is_too_long_is_left_out_and_counted() {
        let long = "y".repeat(3 * READ_BUFFER);
        let input = format!("first\n\n{long}\nlast");
        let mut lines = LineReader::new(input.as_bytes(), MAX_LINE);
        let mut expect = |text: Option<&str>, bytes| {
            let expected = Line { text: text.map(str::as_bytes), bytes };
            assert_eq!(lines.next_line().unwrap(), Some(expected));
        };
        expect(Some("first\n"), 6);
        expect(Some("\n"), 1);
        expect(None, long.len() as u64 + 1);
        expect(Some("last"), 4);
        assert_eq!(lines.next_line().unwrap(), None);
    }

    #[test]
    fn a_byte_order_mark_is_skipped_also_where_files_were_joined() {
        let input = "\u{feff}one\n\u{feff}two\nth\u{feff}ree\n";
        let mut lines = LineReader::new(input.as_bytes(), MAX_LINE);
        for (text, bytes) in [("one\n", 7), ("two\n", 7), ("th\u{feff}ree\n", 9)] {
            let expected = Line { text: Some(text.as_bytes()), bytes };
            assert_eq!(lines.next_line().unwrap(), Some(expected));
        }
    }

    #[test]
    fn the_longest_line_is_read_whole() {
        let longest = format!("{}\n", "y".repeat(MAX_LINE as usize - 1));
        let input = [longest.as_str(), "z"].concat();
        let mut lines = LineReader::new(input.as_bytes(), MAX_LINE);
        assert_eq!(lines.next_line().unwrap().unwrap().text, Some(longest.as_bytes()));
        assert_eq!(lines.next_line().unwrap().unwrap().text, Some(&b"z"[..]));
    }
}
