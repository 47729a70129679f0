//! The bytes of a body that have arrived.

use bytes::Bytes;

use super::memory::{MemoryFull, Reservation};

/// The least capacity of a buffer for a body that comes in several pieces. A body that comes byte
/// by byte would otherwise move its first bytes again and again.
const MIN_CAPACITY: usize = 1024;

/// The bytes of a body that have arrived, with room for about as many again: a client makes the service hold
/// at most twice what it sent, whatever it announced.
#[derive(Debug)]
pub(super) enum Buffer {
    /// Most bodies come in one piece, which is not copied.
    Piece(Bytes),
    Joined(Vec<u8>),
}

impl Buffer {
    pub(super) const fn new() -> Self {
        Self::Piece(Bytes::new())
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Piece(piece) => piece.len(),
            Self::Joined(joined) => joined.len(),
        }
    }

    /// Appends a piece; the body has at most `max` bytes. Reserves the memory that the buffer will
    /// occupy first.
    ///
    /// # Errors
    /// If that cannot be reserved.
    pub(super) fn push(
        &mut self,
        piece: Bytes,
        max: usize,
        memory: &mut Reservation,
    ) -> Result<(), MemoryFull> {
        let len = self.len() + piece.len();
        match self {
            Self::Piece(first) if first.is_empty() => {
                memory.grow_to(len)?;
                *self = Self::Piece(piece);
            }
            Self::Piece(first) => {
                let mut joined = Vec::new();
                make_room(&mut joined, len, max, memory)?;
                joined.extend_from_slice(first);
                joined.extend_from_slice(&piece);
                *self = Self::Joined(joined);
            }
            Self::Joined(joined) => {
                make_room(joined, len, max, memory)?;
                joined.extend_from_slice(&piece);
            }
        }
        Ok(())
    }

    pub(super) fn into_bytes(self) -> Bytes {
        match self {
            Self::Piece(piece) => piece,
            Self::Joined(joined) => joined.into(),
        }
    }
}

/// Gives the buffer of a body of at most `max` bytes room for `len` bytes and, so that not each
/// piece moves the ones before, for about as many more.
fn make_room(
    buffer: &mut Vec<u8>,
    len: usize,
    max: usize,
    memory: &mut Reservation,
) -> Result<(), MemoryFull> {
    if len > buffer.capacity() {
        let capacity = len.saturating_mul(2).max(MIN_CAPACITY).min(max).max(len);
        memory.grow_to(capacity)?;
        buffer.reserve_exact(capacity - buffer.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::body::memory::{AppMemory, Purpose, tests::memory};

    const LARGE: usize = 100_000;

    fn reservation(bytes: usize) -> Reservation {
        let app = Arc::new(AppMemory::new(&memory(bytes, bytes)));
        Reservation::empty(&app, Purpose::Single)
    }

    #[test]
    fn a_body_in_one_piece_reserves_its_own_length_and_is_not_copied() {
        let (mut buffer, mut memory) = (Buffer::new(), reservation(3));
        let piece = Bytes::from(b"abc".to_vec());
        let at = piece.as_ptr();
        buffer.push(piece, LARGE, &mut memory).unwrap();
        assert_eq!(buffer.into_bytes().as_ptr(), at);
    }

    #[test]
    fn what_is_held_and_reserved_follows_what_has_arrived_and_not_what_is_announced() {
        for size in [1, 7, 1000, 30_000] {
            let (mut buffer, mut memory) = (Buffer::new(), reservation(LARGE));
            let mut whole = Vec::new();
            while whole.len() < LARGE {
                let piece: Vec<u8> = (0..size.min(LARGE - whole.len())).map(|i| i as u8).collect();
                whole.extend_from_slice(&piece);
                buffer.push(piece.into(), LARGE, &mut memory).unwrap();
                let held = match &buffer {
                    Buffer::Piece(piece) => piece.len(),
                    Buffer::Joined(joined) => joined.capacity(),
                };
                assert_eq!(memory.bytes(), held, "{} of {size} each", whole.len());
                assert!(held <= (2 * whole.len()).max(MIN_CAPACITY), "{held} for {}", whole.len());
            }
            assert_eq!(memory.bytes(), LARGE, "a body of announced length is not held twice");
            assert_eq!(buffer.into_bytes(), whole);
        }
    }

    #[test]
    fn a_body_that_finds_no_more_memory_holds_what_it_held_before() {
        let (mut buffer, mut memory) = (Buffer::new(), reservation(MIN_CAPACITY));
        for _ in 0..MIN_CAPACITY {
            buffer.push(Bytes::from_static(b"x"), LARGE, &mut memory).unwrap();
        }
        let more = buffer.push(Bytes::from_static(b"x"), LARGE, &mut memory);
        assert_eq!(more, Err(MemoryFull::App));
        assert_eq!((buffer.len(), memory.bytes()), (MIN_CAPACITY, MIN_CAPACITY));
    }
}
