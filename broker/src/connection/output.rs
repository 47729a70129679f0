//! What is encoded for a client and not written yet.

use std::{collections::VecDeque, io};

use bytes::BytesMut;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::sessions::Reservation;

/// How much is encoded ahead of the network, in bytes; while so much is unwritten, nothing is read.
pub(super) const HIGH_WATER: usize = 16 * 1024;

/// What an empty buffer may keep for the bytes to come.
const SPARE: usize = 2 * HIGH_WATER;

/// The output of one connection.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// What is to be written.
    pub(super) bytes: BytesMut,
    /// How many bytes were written so far.
    written: u64,
    /// The memory of messages that no session keeps any more, until everything up to a position of
    /// the stream is written. A device that takes messages slowly, or that acknowledges them without
    /// reading them, would use memory outside of the bound otherwise.
    held: VecDeque<(u64, Reservation)>,
}

impl Output {
    /// Whether more may be encoded.
    pub(super) fn has_room(&self) -> bool {
        self.bytes.len() < HIGH_WATER
    }

    /// Keeps this memory reserved until all that is encoded so far is written.
    pub(super) fn hold(&mut self, memory: Option<Reservation>) {
        if let Some(memory) = memory
            && !self.bytes.is_empty()
        {
            let end = self.written + self.bytes.len() as u64;
            self.held.push_back((end, memory));
        }
    }

    /// Writes some bytes. Whether nothing is left to be written or flushed. Cancel-safe.
    pub(super) async fn write(
        &mut self,
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<bool> {
        if !self.bytes.is_empty() {
            let written = writer.write_buf(&mut self.bytes).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.written += written as u64;
            while self.held.front().is_some_and(|(end, _)| *end <= self.written) {
                self.held.pop_front();
            }
        }
        if !self.bytes.is_empty() {
            return Ok(false);
        }
        writer.flush().await?;
        if self.bytes.capacity() > SPARE {
            self.bytes = BytesMut::new();
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::test_reservation;

    #[tokio::test]
    async fn memory_of_a_message_stays_reserved_until_it_is_written() {
        let (memory, used) = test_reservation();
        let mut output = Output::default();
        output.bytes.extend_from_slice(b"a message");
        output.hold(Some(memory));
        output.bytes.extend_from_slice(b", and a later one");
        assert!(used() > 0);
        let (mut near, mut far) = tokio::io::duplex(9);
        assert!(!output.write(&mut near).await.unwrap());
        assert_eq!(used(), 0, "what comes after it does not keep it");
        let (again, used) = test_reservation();
        output.hold(Some(again));
        tokio::io::AsyncReadExt::read_exact(&mut far, &mut [0; 9]).await.unwrap();
        output.write(&mut near).await.unwrap();
        assert!(used() > 0, "a part of it is not written");
    }
}
