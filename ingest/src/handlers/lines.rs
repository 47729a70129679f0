//! The lines of a body with one request a line (NDJSON). Lines of white space are none.

use push_model::text::without_mark;

use crate::rejection::Rejection;

/// A part of a body that is worked on before other requests have their turn, in bytes: about half a
/// millisecond of work.
const PORTION: usize = 64 * 1024;
/// The cost of a line beside its bytes, counted in bytes of a portion.
const LINE_COST: usize = 128;
/// The most lines of white space in a body: each takes time, and there is room for millions.
const MAX_BLANK: usize = 10_000;

/// Why a body is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadLines {
    None,
    /// More than so many.
    TooMany(usize),
    /// More blank lines than so many.
    TooManyBlank(usize),
}

impl Rejection {
    /// Refuses a body whose lines are pushes.
    pub(super) fn from_pushes(bad: BadLines) -> Self {
        match bad {
            BadLines::None => Self::MessageIllegal("the body has no line with a push".into()),
            BadLines::TooMany(limit) => Self::TooManyLines(limit),
            BadLines::TooManyBlank(limit) => Self::TooManyBlankLines(limit),
        }
    }

    /// Refuses a body whose lines are changes of devices.
    pub(super) fn from_changes(bad: BadLines) -> Self {
        match bad {
            BadLines::None => Self::Illegal("the body has no line with a change".into()),
            BadLines::TooMany(limit) => Self::TooManyChanges(limit),
            BadLines::TooManyBlank(limit) => {
                Self::Illegal(format!("the body must have at most {limit} lines without a change"))
            }
        }
    }
}

/// Takes the next lines whose checks take the time of a portion.
pub(super) fn next_portion<'a>(
    lines: &mut std::iter::Peekable<impl Iterator<Item = &'a [u8]>>,
) -> impl Iterator<Item = &'a [u8]> {
    let mut portion = 0;
    std::iter::from_fn(move || {
        lines.next_if(|line| {
            let fits = portion < PORTION;
            portion += line.len() + LINE_COST;
            fits
        })
    })
}

/// Returns the lines that are not blank.
pub(super) fn lines(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    all_lines(body).filter(|line| !line.trim_ascii().is_empty())
}

/// Returns the lines without the byte order mark that each may have at its beginning: one that is not the first
/// has it where files were joined.
fn all_lines(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    body.split(|b| *b == b'\n').map(without_mark)
}

/// Counts the lines that are not blank.
///
/// # Errors
/// If there is none, or more than `limit`; or if more than [`MAX_BLANK`] lines are blank.
pub(super) fn count_lines(body: &[u8], limit: usize) -> Result<usize, BadLines> {
    let (mut lines, mut blank) = (0, 0);
    for line in all_lines(body) {
        let count = if line.trim_ascii().is_empty() { &mut blank } else { &mut lines };
        *count += 1;
        if lines > limit {
            return Err(BadLines::TooMany(limit));
        }
        if blank > MAX_BLANK {
            return Err(BadLines::TooManyBlank(MAX_BLANK));
        }
    }
    if lines == 0 { Err(BadLines::None) } else { Ok(lines) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_white_space_are_not_counted() {
        let body = b"\n{}\r\n \t\r\n\n[]\n\n";
        assert_eq!(lines(body).collect::<Vec<_>>(), [&b"{}\r"[..], b"[]"]);
        assert_eq!(count_lines(body, 2), Ok(2));
        let marked = "\u{feff}{}\n\u{feff}\n\u{feff}[]\r\n".as_bytes();
        assert_eq!(lines(marked).collect::<Vec<_>>(), [&b"{}"[..], b"[]\r"]);
        assert_eq!(count_lines(marked, 2), Ok(2));
        let blank = |lines| [b"{}", &*b"\n".repeat(lines)].concat();
        assert_eq!(count_lines(&blank(MAX_BLANK), 1), Ok(1));
        let too_many = BadLines::TooManyBlank(MAX_BLANK);
        assert_eq!(count_lines(&blank(MAX_BLANK + 1), 1), Err(too_many));
        assert_eq!(count_lines(body, 1), Err(BadLines::TooMany(1)));
        for empty in [&b""[..], b"\n", b" \r\n\n"] {
            assert_eq!(count_lines(empty, 1), Err(BadLines::None), "{empty:?}");
        }
    }
}
