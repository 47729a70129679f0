//! Writes the file.

use std::{
    fs::OpenOptions,
    io::{self, BufWriter, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::{
    MODE,
    format::{EndLine, FORMAT, Header, Line, MessageLine, SessionLine, VERSION},
};
use crate::{
    clocks::Clocks,
    sessions::{Ends, SavedMessage, SavedSession, Sessions},
};

/// Writes the file at this path and syncs it to disk. Holds one session in memory at a time.
pub(super) fn write(path: &Path, sessions: &Sessions, now: Clocks) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(path)?;
    let mut lines = Lines { to: BufWriter::new(file), hash: Sha256::new() };
    lines.write(&Header { format: FORMAT.to_owned(), version: VERSION })?;
    for session in sessions.all() {
        let Some(saved) = session.saved(now) else { continue };
        lines.write(&Line::Session(session_line(&saved, now)))?;
        for message in &saved.messages {
            lines.write(&Line::Message(message_line(message, now)))?;
        }
    }
    let sha256 = hex::encode(lines.hash.clone().finalize());
    lines.write(&Line::End(EndLine { sha256 }))?;
    let file = lines.to.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()
}

struct Lines<W: Write> {
    to: W,
    hash: Sha256,
}

impl<W: Write> Lines<W> {
    fn write(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.hash.update(&bytes);
        self.to.write_all(&bytes)
    }
}

fn session_line(session: &SavedSession, now: Clocks) -> SessionLine {
    let (ends_at, keep) = match session.ends {
        Ends::At(end) => {
            (end.map(|end| now.wall.plus(end.saturating_duration_since(now.monotonic))), None)
        }
        Ends::After(keep) => (None, Some(keep.as_secs())),
    };
    SessionLine {
        app: session.app.id.as_str().to_owned(),
        generation: session.app.generation,
        client: session.client.as_str().to_owned(),
        registration: session.registration.to_string(),
        qos: session.qos.map(u8::from),
        ends_at,
        keep,
    }
}

fn message_line(message: &SavedMessage, now: Clocks) -> MessageLine {
    MessageLine {
        id: message.id,
        expires_at: message.expiry.map(|end| now.wall.plus(end.remaining(now))),
        payload: BASE64.encode(&message.payload),
    }
}
