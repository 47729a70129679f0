//! The lines of a batch request, each checked as a single push would be.

use std::sync::Arc;

use push_model::{
    app::App, device::TransportKind, ids::MessageId, text::without_mark, time::UnixMillis,
    trace_parent::TraceParent,
};

use crate::{
    apps::Caller,
    handlers::{
        idempotency::{KnownNonces, checked_key, identify},
        push::{CheckOutcome, CheckedPush, PushHandler, ReadPush},
        size,
    },
    message::Push,
    publisher::PushGroup,
    rejection::Rejection,
};

/// A part of a body that is checked before other requests have their turn, in bytes: about half a
/// millisecond of work.
const PORTION: usize = 64 * 1024;
/// The cost of checking a line beside its bytes, counted in bytes of a portion.
const LINE_COST: usize = 128;
/// The most lines of white space in a body: each takes time, and there is room for millions.
const MAX_BLANK: usize = 10_000;
/// About how many bytes a job has more than its line.
const JOB_OVERHEAD: usize = 192;

/// A line after its checks.
pub(super) enum CheckedLine {
    /// It is valid and not to be sent. The texts are warnings.
    DryRun(MessageId, Vec<String>),
    /// Its job is in the group with this index, and it is accepted, with these warnings, if that group is.
    InGroup(MessageId, usize, Vec<String>),
    Rejected(Rejection),
}

/// The lines of a request after their checks, and the groups of their jobs.
pub(super) struct CheckedLines {
    pub(super) lines: Vec<CheckedLine>,
    pub(super) groups: Vec<PushGroup>,
}

impl PushHandler {
    /// Checks the first `allowed` lines of a body. `trace` is what the spans of their jobs follow; `strict` refuses
    /// unknown fields.
    pub(super) async fn check_lines(
        &self,
        caller: &Caller,
        body: &[u8],
        allowed: usize,
        trace: Option<TraceParent>,
        strict: bool,
    ) -> CheckedLines {
        let app = &*caller.cached;
        self.usage.learn(app).await;
        let carriers = self.carriers(app, body.len()).await;
        let stamp = (UnixMillis::now(), trace);
        // For all portions together, so that an index that is away holds the request up once.
        let until = self.keys.ledger_deadline();
        let mut groups = self.publisher.push_groups(allowed, body.len() + allowed * JOB_OVERHEAD);
        let mut checked = Vec::with_capacity(allowed);
        // Each job is written into this buffer, and then appended to its group.
        let mut job = Vec::new();
        let mut lines = lines(body).take(allowed).peekable();
        while lines.peek().is_some() {
            let read = |line| self.read_line(&app.app, line, carriers.as_ref(), strict);
            let read: Vec<_> = next_portion(&mut lines).map(read).collect();
            let keyed = read.iter().flatten().filter(|line| line.has_key).map(|line| line.id);
            let keyed: Vec<MessageId> = keyed.collect();
            let known = match keyed.is_empty() {
                true => KnownNonces::default(),
                false => self.keys.known_nonces(&app.app, keyed, until).await,
            };
            for line in read {
                job.clear();
                let line = line.and_then(|line| self.check(caller, line, &known, stamp, &mut job));
                checked.push(match line {
                    Ok(CheckedPush { outcome: CheckOutcome::DryRun(id), warnings }) => {
                        CheckedLine::DryRun(id, warnings)
                    }
                    Ok(CheckedPush { outcome: CheckOutcome::Job(id, place), warnings }) => {
                        CheckedLine::InGroup(id, groups.add(&job, place), warnings)
                    }
                    Err(rejection) => CheckedLine::Rejected(rejection),
                });
            }
            tokio::task::yield_now().await;
        }
        CheckedLines { lines: checked, groups: groups.finish() }
    }

    /// Reads a line and checks its fields.
    fn read_line<'a>(
        &self,
        app: &App,
        line: &'a [u8],
        carriers: Option<&Arc<[TransportKind]>>,
        strict: bool,
    ) -> Result<ReadPush<'a>, Rejection> {
        let limit = self.http.max_body;
        if line.len() > limit {
            return Err(Rejection::MessageTooLarge(limit));
        }
        let (push, key) = Push::read_line(line, self.rules)?;
        if strict {
            push.notes.refuse_unknown_fields()?;
        }
        let key = key.as_ref().map(|key| checked_key(key.as_bytes(), "idempotency_key"));
        let key = key.transpose()?;
        let id = identify(app, key, push.audience_kind(), push.dry_run);
        let has_key = key.is_some();
        Ok(ReadPush { push, id, has_key, carriers: size::of_line(carriers, line.len()) })
    }
}

/// Takes the next lines whose checks take the time of a portion.
fn next_portion<'a>(
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

fn lines(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    all_lines(body).filter(|line| !line.trim_ascii().is_empty())
}

/// Returns the lines without the byte order mark that each may have at its beginning: one that is not the first
/// has it where files were joined.
fn all_lines(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    body.split(|b| *b == b'\n').map(without_mark)
}

/// Counts the lines that are pushes.
///
/// # Errors
/// If there is none, or more than `limit`; or if more than [`MAX_BLANK`] lines are none.
pub(super) fn count_lines(body: &[u8], limit: usize) -> Result<usize, Rejection> {
    let (mut pushes, mut others) = (0, 0);
    for line in all_lines(body) {
        let count = if line.trim_ascii().is_empty() { &mut others } else { &mut pushes };
        *count += 1;
        if pushes > limit {
            return Err(Rejection::TooManyLines(limit));
        }
        if others > MAX_BLANK {
            return Err(Rejection::TooManyBlankLines(MAX_BLANK));
        }
    }
    match pushes {
        0 => Err(Rejection::MessageIllegal("the body has no line with a push".into())),
        pushes => Ok(pushes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_white_space_are_no_pushes() {
        let body = b"\n{}\r\n \t\r\n\n[]\n\n";
        assert_eq!(lines(body).collect::<Vec<_>>(), [&b"{}\r"[..], b"[]"]);
        assert_eq!(count_lines(body, 2), Ok(2));
        let marked = "\u{feff}{}\n\u{feff}\n\u{feff}[]\r\n".as_bytes();
        assert_eq!(lines(marked).collect::<Vec<_>>(), [&b"{}"[..], b"[]\r"]);
        assert_eq!(count_lines(marked, 2), Ok(2));
        let blank = |lines| [b"{}", &*b"\n".repeat(lines)].concat();
        assert_eq!(count_lines(&blank(MAX_BLANK), 1), Ok(1));
        let too_many = Rejection::TooManyBlankLines(MAX_BLANK);
        assert_eq!(count_lines(&blank(MAX_BLANK + 1), 1), Err(too_many));
        assert_eq!(count_lines(body, 1), Err(Rejection::TooManyLines(1)));
        for empty in [&b""[..], b"\n", b" \r\n\n"] {
            assert!(
                matches!(count_lines(empty, 1), Err(Rejection::MessageIllegal(_))),
                "{empty:?}"
            );
        }
    }
}
