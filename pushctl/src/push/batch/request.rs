//! Cuts a file of pushes into batch requests.

use std::io;

use push_operator::input::{LineReader, NotedLines};
use serde::{Deserialize, de::IgnoredAny};

/// The most that one request may hold.
#[derive(Debug, Clone, Copy)]
pub(in crate::push) struct Limits {
    pub(in crate::push) lines: usize,
    /// The most bytes.
    pub(in crate::push) body: usize,
}

/// The pushes of one request, one a line.
#[derive(Debug, Default)]
pub(super) struct BatchRequest {
    pub(super) body: Vec<u8>,
    /// The line number of each push in the input, and where the push ends in the body.
    lines: Vec<(u64, usize)>,
    /// Input lines that are too long for any request.
    pub(super) rejected: NotedLines,
    /// The bytes of the input that it covers.
    pub(super) input_bytes: u64,
}

impl BatchRequest {
    pub(super) fn count(&self) -> usize {
        self.lines.len()
    }

    /// The line number of each push in the input.
    pub(super) fn line_numbers(&self) -> impl Iterator<Item = u64> {
        self.lines.iter().map(|(number, _)| *number)
    }

    fn line(&self, index: usize) -> &[u8] {
        let end = |index: usize| self.lines.get(index).map_or(0, |(_, end)| *end);
        let begin = index.checked_sub(1).map_or(0, end);
        self.body.get(begin..end(index)).unwrap_or_default()
    }

    fn add(&mut self, number: u64, push: &[u8]) {
        self.body.extend_from_slice(push);
        self.body.push(b'\n');
        self.lines.push((number, self.body.len()));
    }

    /// Returns true if the push at this index has an idempotency key: sent again, it is still
    /// accepted once.
    pub(super) fn has_key(&self, index: usize) -> bool {
        #[derive(Deserialize)]
        struct Keyed {
            idempotency_key: Option<IgnoredAny>,
        }
        let push: Result<Keyed, _> = serde_json::from_slice(self.line(index));
        push.is_ok_and(|push| push.idempotency_key.is_some())
    }

    /// Returns a request with only the pushes at these indexes.
    pub(super) fn subset(&self, indexes: &[usize]) -> Self {
        let mut subset = Self::default();
        for &index in indexes {
            if let Some((number, _)) = self.lines.get(index) {
                subset.add(*number, self.line(index).trim_ascii_end());
            }
        }
        subset
    }
}

/// Cuts an input into batch requests.
#[derive(Debug)]
pub(super) struct BatchRequests<R> {
    lines: LineReader<R>,
    limits: Limits,
    lines_read: u64,
    /// The push that did not fit into the last request, with its line number.
    carried: Option<(u64, Vec<u8>)>,
}

impl<R: io::Read> BatchRequests<R> {
    pub(super) fn new(input: R, limits: Limits) -> Self {
        let lines = LineReader::new(input, limits.body as u64);
        Self { lines, limits, lines_read: 0, carried: None }
    }

    /// Returns the next request; `None` at the end of the input. A request may have no push, only
    /// rejected lines.
    pub(super) fn next(&mut self) -> io::Result<Option<BatchRequest>> {
        let mut request = BatchRequest::default();
        if let Some((number, push)) = self.carried.take() {
            request.add(number, &push);
        }
        while request.count() < self.limits.lines {
            let Some(line) = self.lines.next_line()? else {
                let is_empty = request.count() == 0 && request.input_bytes == 0;
                return Ok((!is_empty).then_some(request));
            };
            self.lines_read += 1;
            request.input_bytes += line.bytes;
            match line.text.map(<[u8]>::trim_ascii) {
                None => {
                    let limit = self.limits.body;
                    request.rejected.add(self.lines_read, format!("longer than {limit} bytes"));
                }
                Some([]) => {}
                Some(push) if request.body.len() + push.len() + 1 > self.limits.body => {
                    self.carried = Some((self.lines_read, push.to_vec()));
                    break;
                }
                Some(push) => request.add(self.lines_read, push),
            }
        }
        Ok(Some(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bodies of all requests, and their line numbers.
    fn requests(input: &str, lines: usize, body: usize) -> Vec<(String, Vec<u64>)> {
        let mut requests = BatchRequests::new(input.as_bytes(), Limits { lines, body });
        let mut all = Vec::new();
        let mut bytes = 0;
        while let Some(request) = requests.next().unwrap() {
            bytes += request.input_bytes;
            let body = String::from_utf8(request.body.clone()).unwrap();
            all.push((body, request.line_numbers().collect()));
        }
        assert_eq!(bytes, input.len() as u64, "every byte counts for the progress bar");
        all
    }

    #[test]
    fn a_batch_request_has_no_more_lines_and_bytes_than_a_request_may_have() {
        let of = |body: &str, numbers: &[u64]| (body.to_owned(), numbers.to_vec());
        let input = "a\n\n b \r\nc\nd";
        let all = [of("a\nb\n", &[1, 3]), of("c\nd\n", &[4, 5])];
        assert_eq!(requests(input, 2, 100), all);
        assert_eq!(requests(input, 100, 5), all);
        assert_eq!(requests(input, 100, 8), [of("a\nb\nc\nd\n", &[1, 3, 4, 5])]);
        assert_eq!(requests("", 100, 100), []);
    }

    #[test]
    fn a_line_that_is_longer_than_a_request_is_a_bad_line_between_the_others() {
        let input = format!("1234567\n{}\nc\n", "x".repeat(8));
        let mut requests = BatchRequests::new(input.as_bytes(), Limits { lines: 9, body: 8 });
        let first = requests.next().unwrap().unwrap();
        assert_eq!((first.body.as_slice(), first.rejected.count), (&b"1234567\n"[..], 1));
        assert_eq!(first.rejected.reported[0].line, 2);
        let second = requests.next().unwrap().unwrap();
        assert_eq!(
            (second.body.as_slice(), second.line_numbers().collect()),
            (&b"c\n"[..], vec![3])
        );
        assert!(requests.next().unwrap().is_none());
    }

    #[test]
    fn those_that_can_be_sent_again_keep_their_numbers() {
        let input = "{\"idempotency_key\":\"k\"}\n\n{\"idempotency_key\":null}\nx\n{\"a\":1,\
                     \"idempotency_key\":\"l\"}\n";
        let mut requests = BatchRequests::new(input.as_bytes(), Limits { lines: 9, body: 1000 });
        let request = requests.next().unwrap().unwrap();
        let keyed: Vec<_> = (0..request.count()).filter(|index| request.has_key(*index)).collect();
        assert_eq!(keyed, [0, 3]);
        let again = request.subset(&keyed);
        assert_eq!(again.line_numbers().collect::<Vec<_>>(), [1, 5]);
        let body = b"{\"idempotency_key\":\"k\"}\n{\"a\":1,\"idempotency_key\":\"l\"}\n";
        assert_eq!(again.body, body);
    }
}
