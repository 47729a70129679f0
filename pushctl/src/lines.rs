//! The lines of an input, of which none can be so long that it fills the memory.

use std::io::{self, BufRead, BufReader, Read};

/// How much is read at once, in bytes.
const PIECE: usize = 1 << 20;

/// Reads line by line.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    input: BufReader<R>,
    longest: u64,
    line: Vec<u8>,
}

/// What was read of a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// The line; none if it is longer than may be.
    pub(crate) text: Option<&'a [u8]>,
    /// How long it is, its end included.
    pub(crate) bytes: u64,
}

impl<R: Read> Lines<R> {
    /// The lines of an input, of which none may have more bytes than `longest`, its end included.
    pub(crate) fn new(input: R, longest: u64) -> Self {
        Self { input: BufReader::with_capacity(PIECE, input), longest, line: Vec::new() }
    }

    /// The next line; none at the end of the input.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        let limited = &mut self.input.by_ref().take(self.longest);
        let bytes = limited.read_until(b'\n', &mut self.line)? as u64;
        if bytes == 0 {
            return Ok(None);
        }
        if bytes < self.longest || self.line.last() == Some(&b'\n') {
            return Ok(Some(Line { text: Some(&self.line), bytes }));
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
        let long = "y".repeat(3 * PIECE);
        let input = format!("first\n\n{long}\nlast");
        let mut lines = Lines::new(input.as_bytes(), MAX_LINE);
        let mut expect = |text: Option<&str>, bytes| {
            let expected = Line { text: text.map(str::as_bytes), bytes };
            assert_eq!(lines.next().unwrap(), Some(expected));
        };
        expect(Some("first\n"), 6);
        expect(Some("\n"), 1);
        expect(None, long.len() as u64 + 1);
        expect(Some("last"), 4);
        assert_eq!(lines.next().unwrap(), None);
    }

    #[test]
    fn the_longest_line_is_read_whole() {
        let longest = format!("{}\n", "y".repeat(MAX_LINE as usize - 1));
        let input = [longest.as_str(), "z"].concat();
        let mut lines = Lines::new(input.as_bytes(), MAX_LINE);
        assert_eq!(lines.next().unwrap().unwrap().text, Some(longest.as_bytes()));
        assert_eq!(lines.next().unwrap().unwrap().text, Some(&b"z"[..]));
    }
}
