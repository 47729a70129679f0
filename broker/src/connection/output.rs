//! Bytes that are encoded for a client and not yet written.

use std::{collections::VecDeque, io};

use bytes::BytesMut;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::sessions::Reservation;

/// The most bytes that are encoded ahead of the network. While that many are unwritten, nothing is read.
pub(super) const HIGH_WATER: usize = 16 * 1024;

/// The capacity that an empty buffer may keep.
const SPARE: usize = 2 * HIGH_WATER;

/// The output of one connection.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// Unwritten bytes.
    pub(super) bytes: BytesMut,
    /// The number of bytes written so far.
    written: u64,
    /// Memory of messages that no session keeps any more, each until the stream is written up to a
    /// position. Otherwise a device that reads slowly, or acknowledges without reading, would use memory
    /// outside the bound.
    held: VecDeque<(u64, Reservation)>,
}

impl Output {
    /// Returns true if more may be encoded.
    pub(super) fn has_room(&self) -> bool {
        self.bytes.len() < HIGH_WATER
    }

    /// Keeps this memory reserved until everything encoded so far is written.
    pub(super) fn hold(&mut self, memory: Option<Reservation>) {
        if let Some(memory) = memory
            && !self.bytes.is_empty()
        {
            let end = self.written + self.bytes.len() as u64;
            self.held.push_back((end, memory));
        }
    }

    /// Writes some bytes. Returns true if nothing is left to write or flush. Cancel-safe.
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
