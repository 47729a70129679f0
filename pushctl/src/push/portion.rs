//! The part of a file of pushes that goes with one request.

use std::io;

use serde::{Deserialize, de::IgnoredAny};

use crate::{bad_lines::BadLines, lines::Lines};

/// How large a request may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) lines: usize,
    /// Bytes.
    pub(super) body: usize,
}

/// Pushes for one request, a line each.
#[derive(Debug, Default)]
pub(super) struct Portion {
    pub(super) body: Vec<u8>,
    /// The number of each in the input, and where it ends in the body.
    lines: Vec<(u64, usize)>,
    /// Lines between them that are no pushes.
    pub(super) bad: BadLines,
    /// How much of the input it is.
    pub(super) bytes: u64,
}

impl Portion {
    pub(super) fn count(&self) -> usize {
        self.lines.len()
    }

    /// The number in the input of each push.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.lines.iter().map(|(number, _)| *number)
    }

    fn line(&self, at: usize) -> &[u8] {
        let end = |at: usize| self.lines.get(at).map_or(0, |(_, end)| *end);
        let begin = at.checked_sub(1).map_or(0, end);
        self.body.get(begin..end(at)).unwrap_or_default()
    }

    fn add(&mut self, number: u64, push: &[u8]) {
        self.body.extend_from_slice(push);
        self.body.push(b'\n');
        self.lines.push((number, self.body.len()));
    }

    /// Whether a push has a key, so that sending it again sends nothing twice.
    pub(super) fn has_key(&self, at: usize) -> bool {
        #[derive(Deserialize)]
        struct Keyed {
            idempotency_key: Option<IgnoredAny>,
        }
        let read: Result<Keyed, _> = serde_json::from_slice(self.line(at));
        read.is_ok_and(|push| push.idempotency_key.is_some())
    }

    /// Those of its pushes.
    pub(super) fn only(&self, which: &[usize]) -> Self {
        let mut portion = Self::default();
        for &at in which {
            if let Some((number, _)) = self.lines.get(at) {
                portion.add(*number, self.line(at).trim_ascii_end());
            }
        }
        portion
    }
}

/// Cuts an input into portions.
#[derive(Debug)]
pub(super) struct Portions<R> {
    lines: Lines<R>,
    limits: Limits,
    /// How many lines were read.
    read: u64,
    /// A push that had no room in the portion before.
    left: Option<(u64, Vec<u8>)>,
}

impl<R: io::Read> Portions<R> {
    pub(super) fn new(input: R, limits: Limits) -> Self {
        Self { lines: Lines::new(input, limits.body as u64), limits, read: 0, left: None }
    }

    /// The next portion; none at the end of the input. It may have no push, only bad lines.
    pub(super) fn next(&mut self) -> io::Result<Option<Portion>> {
        let mut portion = Portion::default();
        if let Some((number, push)) = self.left.take() {
            portion.add(number, &push);
        }
        while portion.count() < self.limits.lines {
            let Some(line) = self.lines.next()? else {
                let nothing = portion.count() == 0 && portion.bytes == 0;
                return Ok((!nothing).then_some(portion));
            };
            self.read += 1;
            portion.bytes += line.bytes;
            match line.text.map(<[u8]>::trim_ascii) {
                None => {
                    let limit = self.limits.body;
                    portion.bad.add(self.read, format!("longer than {limit} bytes"));
                }
                Some([]) => {}
                Some(push) if portion.body.len() + push.len() + 1 > self.limits.body => {
                    self.left = Some((self.read, push.to_vec()));
                    break;
                }
                Some(push) => portion.add(self.read, push),
            }
        }
        Ok(Some(portion))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bodies of all portions, and the numbers of their lines.
    fn portions(input: &str, lines: usize, body: usize) -> Vec<(String, Vec<u64>)> {
        let mut portions = Portions::new(input.as_bytes(), Limits { lines, body });
        let mut all = Vec::new();
        let mut bytes = 0;
        while let Some(portion) = portions.next().unwrap() {
            bytes += portion.bytes;
            let body = String::from_utf8(portion.body.clone()).unwrap();
            all.push((body, portion.numbers().collect()));
        }
        assert_eq!(bytes, input.len() as u64, "every byte counts for the progress bar");
        all
    }

    #[test]
    fn a_portion_has_no_more_lines_and_bytes_than_a_request_may_have() {
        let of = |body: &str, numbers: &[u64]| (body.to_owned(), numbers.to_vec());
        let input = "a\n\n b \r\nc\nd";
        let all = [of("a\nb\n", &[1, 3]), of("c\nd\n", &[4, 5])];
        assert_eq!(portions(input, 2, 100), all);
        assert_eq!(portions(input, 100, 5), all);
        assert_eq!(portions(input, 100, 8), [of("a\nb\nc\nd\n", &[1, 3, 4, 5])]);
        assert_eq!(portions("", 100, 100), []);
    }

    #[test]
    fn a_line_that_is_longer_than_a_request_is_a_bad_line_between_the_others() {
        let input = format!("1234567\n{}\nc\n", "x".repeat(8));
        let mut portions = Portions::new(input.as_bytes(), Limits { lines: 9, body: 8 });
        let first = portions.next().unwrap().unwrap();
        assert_eq!((first.body.as_slice(), first.bad.count), (&b"1234567\n"[..], 1));
        assert_eq!(first.bad.reported[0].line, 2);
        let second = portions.next().unwrap().unwrap();
        assert_eq!((second.body.as_slice(), second.numbers().collect()), (&b"c\n"[..], vec![3]));
        assert!(portions.next().unwrap().is_none());
    }

    #[test]
    fn those_that_can_be_sent_again_keep_their_numbers() {
        let input = "{\"idempotency_key\":\"k\"}\n\n{\"idempotency_key\":null}\nx\n{\"a\":1,\
                     \"idempotency_key\":\"l\"}\n";
        let mut portions = Portions::new(input.as_bytes(), Limits { lines: 9, body: 1000 });
        let portion = portions.next().unwrap().unwrap();
        let keyed: Vec<_> = (0..portion.count()).filter(|at| portion.has_key(*at)).collect();
        assert_eq!(keyed, [0, 3]);
        let again = portion.only(&keyed);
        assert_eq!(again.numbers().collect::<Vec<_>>(), [1, 5]);
        let body = b"{\"idempotency_key\":\"k\"}\n{\"a\":1,\"idempotency_key\":\"l\"}\n";
        assert_eq!(again.body, body);
    }
}
