//! The bytes of one connection: input that is not decoded yet, and output that is not written yet.
//!
//! Dropping a link closes its stream, because no session holds it.

use std::{io, time::Duration};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf},
    time::{Instant, timeout},
};

use super::output::Output;

/// The time without progress after which a write counts as stalled.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The time for closing a connection: for the last bytes, and for the peer to close its side.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The bytes that are still read from a peer while its connection closes. Closing a socket with unread
/// bytes resets the connection, and the peer could lose the last answer.
const LAST_BYTES: u64 = 64 * 1024;

/// A connection to a client.
#[derive(Debug)]
pub(super) struct Link<S> {
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    /// Bytes that were read and not decoded.
    pub(super) input: BytesMut,
    /// Bytes to be written.
    pub(super) output: Output,
    unflushed: bool,
    /// The time of the last write, or the time at which there was something to write.
    wrote: Instant,
    /// The last time at which something was read, or was not read because the output was full.
    read: Instant,
}

/// The progress of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// More bytes are in the input.
    Read,
    /// Some of the output is written.
    Wrote,
}

impl<S: AsyncRead + AsyncWrite> Link<S> {
    pub(super) fn new(stream: S) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        let now = Instant::now();
        Self {
            reader,
            writer,
            input: BytesMut::new(),
            output: Output::default(),
            unflushed: false,
            wrote: now,
            read: now,
        }
    }

    /// Returns the time at which the connection ends because its peer reads nothing.
    pub(super) fn give_up_at(&mut self) -> Option<Instant> {
        self.begin_to_write();
        self.unflushed.then(|| self.wrote + WRITE_TIMEOUT)
    }

    /// Returns the time at which a client with this keep-alive has been silent for too long (MQTT 5, section
    /// 3.1.2.10).
    pub(super) fn silent_at(&self, keep_alive: Duration) -> Instant {
        self.read + keep_alive + keep_alive / 2
    }

    /// Starts the time for writing when there is something to write: the last write of a quiet connection
    /// may be long ago.
    fn begin_to_write(&mut self) {
        if !self.unflushed && !self.output.bytes.is_empty() {
            (self.unflushed, self.wrote) = (true, Instant::now());
        }
    }

    /// Reads or writes something. Cancel-safe.
    ///
    /// # Errors
    /// If the connection broke or its peer closed it.
    pub(super) async fn progress(&mut self) -> io::Result<Event> {
        self.begin_to_write();
        let (has_room, is_unwritten) = (self.output.has_room(), self.unflushed);
        let Self { reader, writer, input, output, unflushed, wrote, read: read_at } = self;
        tokio::select! {
            read = reader.read_buf(input), if has_room => match read? {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                _ => {
                    *read_at = Instant::now();
                    Ok(Event::Read)
                }
            },
            written = output.write(writer), if is_unwritten => {
                *unflushed = !written?;
                *wrote = Instant::now();
                if !has_room {
                    // A peer that was not read from is not silent.
                    *read_at = *wrote;
                }
                Ok(Event::Wrote)
            }
        }
    }

    /// Writes the remaining output and closes the connection.
    pub(super) async fn close(mut self) {
        let last = async {
            self.writer.write_all_buf(&mut self.output.bytes).await?;
            self.writer.shutdown().await?;
            let mut rest = self.reader.take(LAST_BYTES);
            tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
        };
        // The connection ends either way.
        let _ = timeout(CLOSE_TIMEOUT, last).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::{super::output::HIGH_WATER, *};

    #[tokio::test]
    async fn what_is_unwritten_stops_the_reading_and_has_a_deadline() {
        let (near, mut far) = tokio::io::duplex(1024);
        let mut link = Link::new(near);
        assert_eq!(link.give_up_at(), None);
        link.output.bytes.resize(2 * HIGH_WATER, b'x');
        far.write_all(b"more").await.unwrap();
        assert_eq!(link.progress().await.unwrap(), Event::Wrote);
        assert!(timeout(Duration::from_millis(10), link.progress()).await.is_err());
        assert!(link.input.is_empty() && link.give_up_at().is_some());
        let mut taken = vec![0; 2 * HIGH_WATER];
        let read = tokio::spawn(async move {
            far.read_exact(&mut taken).await.unwrap();
            far
        });
        while link.give_up_at().is_some() || link.input.is_empty() {
            link.progress().await.unwrap();
        }
        assert_eq!(&link.input[..], b"more");
        drop(read.await.unwrap());
        assert!(link.progress().await.is_err(), "the peer has closed");
    }

    #[tokio::test]
    async fn the_time_for_writing_counts_from_when_there_is_something_to_write() {
        let (near, _far) = tokio::io::duplex(1024);
        let mut link = Link::new(near);
        let now = Instant::now();
        link.wrote = now.checked_sub(2 * WRITE_TIMEOUT).unwrap();
        assert_eq!(link.give_up_at(), None);
        link.output.bytes.extend_from_slice(b"after a long silence");
        assert!(link.give_up_at().unwrap() >= now + WRITE_TIMEOUT);
    }

    #[tokio::test]
    async fn a_peer_is_not_silent_while_it_takes_so_much_that_nothing_is_read() {
        let keep_alive = Duration::from_secs(1);
        for (len, is_silent) in [(HIGH_WATER, false), (HIGH_WATER - 1, true)] {
            let (near, _far) = tokio::io::duplex(1024);
            let mut link = Link::new(near);
            link.read = link.read.checked_sub(2 * keep_alive).unwrap();
            link.output.bytes.resize(len, b'x');
            assert_eq!(link.progress().await.unwrap(), Event::Wrote);
            assert_eq!(link.silent_at(keep_alive) < Instant::now(), is_silent, "{len}");
        }
    }

    #[tokio::test]
    async fn the_last_answer_arrives_also_if_the_peer_goes_on_to_send() {
        let (near, mut far) = tokio::io::duplex(64);
        let mut link = Link::new(near);
        link.output.bytes.extend_from_slice(b"no");
        let closing = tokio::spawn(link.close());
        far.write_all(&[0; 32]).await.unwrap();
        let mut answer = String::new();
        far.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "no");
        drop(far);
        closing.await.unwrap();
    }
}
