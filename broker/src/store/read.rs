//! Reads the file without trusting it: lines have a maximum length, and sessions and messages must fit
//! the same bounds as those from clients.

use std::{
    collections::VecDeque,
    io::{self, BufRead as _, BufReader, Read},
    path::Path,
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use push_model::{app::AppKey, time::UnixMillis};
use rmqtt_codec::types::QoS;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::{
    Restored, StoreError,
    format::{EndLine, FORMAT, Header, Line, MAX_LINE, MessageLine, SessionLine, VERSION},
};
use crate::{
    clocks::{Clocks, Expiry},
    sessions::{Ends, SavedMessage, SavedSession, SessionLimits, Sessions, TooMany, message_size},
};

/// Restores the file's sessions into these, without what has expired.
pub(super) fn read(
    path: &Path,
    file: impl Read,
    sessions: &Sessions,
    now: Clocks,
) -> Result<Restored, StoreError> {
    let mut lines =
        Lines { from: BufReader::new(file), hash: Sha256::new(), number: 0, line: Vec::new() };
    read_lines(&mut lines, sessions, now).map_err(|problem| match problem {
        Problem::Io(error) => StoreError::Io(path.to_owned(), error),
        Problem::Newer(version) => StoreError::Newer { path: path.to_owned(), version },
        Problem::Damaged(problem) => {
            StoreError::Damaged { path: path.to_owned(), line: lines.number, problem }
        }
    })
}

enum Problem {
    Io(io::Error),
    Newer(u32),
    Damaged(&'static str),
}

fn read_lines(
    lines: &mut Lines<impl Read>,
    sessions: &Sessions,
    now: Clocks,
) -> Result<Restored, Problem> {
    let not_ours = Problem::Damaged("it is not a file of sessions");
    let header: Header = match serde_json::from_slice(lines.next()?) {
        Ok(header) => header,
        Err(_) => return Err(not_ours),
    };
    if header.format != FORMAT || header.version == 0 {
        return Err(not_ours);
    }
    if header.version > VERSION {
        return Err(Problem::Newer(header.version));
    }
    let mut restored = Restored::default();
    let mut session: Option<PartialSession> = None;
    loop {
        let before = lines.hash.clone();
        let line = serde_json::from_slice(lines.next()?);
        match line.map_err(|_| Problem::Damaged("the line cannot be read"))? {
            Line::Session(line) => {
                let next =
                    PartialSession { session: read_session(&line, now)?, bytes: 0, in_flight: 0 };
                finish(session.replace(next), sessions, now, &mut restored);
            }
            Line::Message(line) => {
                let session = session.as_mut();
                let session = session.ok_or(Problem::Damaged("a message without a session"))?;
                restored.no_room += session.push(read_message(&line, now)?, sessions.limits());
            }
            Line::End(EndLine { sha256 }) => {
                finish(session, sessions, now, &mut restored);
                if sha256 != hex::encode(before.finalize()) {
                    return Err(Problem::Damaged("the checksum does not match"));
                }
                return match lines.is_at_end()? {
                    true => Ok(restored),
                    false => Err(Problem::Damaged("the file continues after its end")),
                };
            }
        }
    }
}

/// A session whose messages are being read.
struct PartialSession {
    session: SavedSession,
    /// The memory of its messages.
    bytes: usize,
    in_flight: usize,
}

impl PartialSession {
    /// Adds a message. Returns the number of older ones that were dropped because the settings allow fewer
    /// now.
    fn push(&mut self, message: SavedMessage, limits: SessionLimits) -> usize {
        self.bytes += message_size(message.payload.len());
        self.in_flight += usize::from(message.id.is_some());
        let messages = &mut self.session.messages;
        messages.push_back(message);
        let mut dropped = 0;
        while messages.len() > limits.messages.saturating_add(self.in_flight)
            || self.bytes > limits.bytes
        {
            let Some(oldest) = messages.pop_front() else { break };
            self.bytes -= message_size(oldest.payload.len());
            self.in_flight -= usize::from(oldest.id.is_some());
            dropped += 1;
        }
        dropped
    }
}

fn finish(
    session: Option<PartialSession>,
    sessions: &Sessions,
    now: Clocks,
    restored: &mut Restored,
) {
    let Some(PartialSession { session, .. }) = session else { return };
    let messages = session.messages.len();
    match sessions.restore(session, now) {
        Ok(Some(kept)) => {
            restored.sessions += 1;
            restored.messages += kept.messages;
            restored.no_room += kept.no_room;
        }
        Ok(None) => {}
        Err(TooMany) => restored.no_room += 1 + messages,
    }
}

fn read_session(line: &SessionLine, now: Clocks) -> Result<SavedSession, Problem> {
    let wrong = |_| Problem::Damaged("it names no device");
    let qos = match line.qos {
        None => None,
        Some(0) => Some(QoS::AtMostOnce),
        Some(1) => Some(QoS::AtLeastOnce),
        Some(_) => return Err(Problem::Damaged("an unknown QoS")),
    };
    let ends = match (line.keep, line.ends_at) {
        (Some(keep), None) => Ends::After(Duration::from_secs(keep)),
        (None, end) => Ends::At(end.and_then(|end| instant_of(end, now))),
        (Some(_), Some(_)) => return Err(Problem::Damaged("a session with two ends")),
    };
    Ok(SavedSession {
        app: AppKey { id: line.app.parse().map_err(wrong)?, generation: line.generation },
        client: line.client.parse().map_err(wrong)?,
        registration: line
            .registration
            .parse()
            .map_err(|_| Problem::Damaged("it names no device"))?,
        qos,
        ends,
        messages: VecDeque::new(),
    })
}

fn read_message(line: &MessageLine, now: Clocks) -> Result<SavedMessage, Problem> {
    let payload = BASE64.decode(&line.payload);
    Ok(SavedMessage {
        id: line.id,
        expiry: line.expires_at.and_then(|end| Expiry::at(end, now)),
        payload: payload.map_err(|_| Problem::Damaged("the payload is not base64"))?.into(),
    })
}

/// Returns `None` if the time is beyond the range of [`Instant`], and the present for a time in the past.
fn instant_of(time: UnixMillis, now: Clocks) -> Option<Instant> {
    now.monotonic.checked_add(time.since(now.wall))
}

struct Lines<R> {
    from: BufReader<R>,
    /// The hash of all lines so far.
    hash: Sha256,
    number: usize,
    line: Vec<u8>,
}

impl<R: Read> Lines<R> {
    /// Returns the next line, without its line break.
    fn next(&mut self) -> Result<&[u8], Problem> {
        self.number += 1;
        self.line.clear();
        let mut bounded = (&mut self.from).take(MAX_LINE as u64 + 1);
        bounded.read_until(b'\n', &mut self.line).map_err(Problem::Io)?;
        match self.line.split_last() {
            Some((b'\n', line)) => {
                self.hash.update(&self.line);
                Ok(line)
            }
            _ if self.line.len() > MAX_LINE => Err(Problem::Damaged("the line is too long")),
            _ => Err(Problem::Damaged("the file is cut off")),
        }
    }

    fn is_at_end(&mut self) -> Result<bool, Problem> {
        self.from.fill_buf().map(<[u8]>::is_empty).map_err(Problem::Io)
    }
}
