//! Finds the header blocks in the bytes of an HTTP/2 connection (RFC 9113 section 4.3).
//!
//! h2 decodes a block frame by frame and holds what it has decoded. One byte of a block can become a
//! header of over 100 bytes, so blocks that never end, and trailers that are not read, would make the
//! service hold many times what a client sent. So a block is handed to h2 only once it is whole, few at
//! a time, and trailers have a small bound.
//!
//! SETTINGS and GOAWAY are counted, because h2 visits every open stream of the connection for each of them:
//! a client with many streams pays a few bytes for work on all of them.
//!
//! Only frame headers are read here. What they contain is left to h2.

/// The bytes before the first frame of a connection.
const PREFACE: usize = 24;
const FRAME_HEADER: usize = 9;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// The largest block of trailers, in bytes. The service reads no trailers; a checksum fits.
const MAX_TRAILERS: usize = 128;
/// The most bytes of blocks that are handed on before the requests that they begin are taken. h2 decodes them
/// into about 100 KB.
const TURN: usize = 512;

/// A block that is larger than it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TooLarge {
    Head,
    Trailers,
}

/// Reads the frames that a client sends.
#[derive(Debug)]
pub(super) struct HeadBlocks {
    /// The largest block, in bytes.
    max: usize,
    /// The number of bytes until the next frame header.
    skip: usize,
    /// The beginning of a frame header.
    header: [u8; FRAME_HEADER],
    header_bytes: usize,
    open: Option<Block>,
    last_stream: u32,
    /// The bytes of the blocks of this turn.
    turn: usize,
}

/// A block that has begun and is not whole.
#[derive(Debug)]
struct Block {
    bytes: usize,
    is_trailers: bool,
    /// Returns true if no CONTINUATION follows.
    is_last_frame: bool,
}

/// The progress within some bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scanned {
    /// The number of bytes that were read: all, unless the turn is over.
    pub(super) read: usize,
    /// The number of them that can be handed on, with all that came before. Zero if none can.
    pub(super) whole: usize,
    /// The number of frames SETTINGS and GOAWAY that began in them.
    pub(super) visits: u32,
}

impl HeadBlocks {
    /// For a new connection, whose blocks may have so many bytes each.
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            skip: PREFACE,
            header: [0; FRAME_HEADER],
            header_bytes: 0,
            open: None,
            last_stream: 0,
            turn: 0,
        }
    }

    /// Returns true while a block has begun that is not whole.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Returns true if the requests that were handed on should be taken first.
    pub(super) fn is_turn_over(&self) -> bool {
        self.turn >= TURN
    }

    pub(super) fn begin_turn(&mut self) {
        self.turn = 0;
    }

    /// Reads on, until the turn is over.
    ///
    /// # Errors
    /// If a block is larger than it may be.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> Result<Scanned, TooLarge> {
        let mut scanned = Scanned::default();
        while scanned.read < bytes.len() && !self.is_turn_over() {
            let rest = &bytes[scanned.read..];
            if self.skip > 0 {
                let skipped = self.skip.min(rest.len());
                self.skip -= skipped;
                scanned.read += skipped;
            } else {
                let taken = rest.len().min(FRAME_HEADER - self.header_bytes);
                self.header[self.header_bytes..][..taken].copy_from_slice(&rest[..taken]);
                self.header_bytes += taken;
                scanned.read += taken;
                if self.header_bytes == FRAME_HEADER {
                    self.header_bytes = 0;
                    self.begin_frame()?;
                    scanned.visits += u32::from(matches!(self.header[3], SETTINGS | GOAWAY));
                }
            }
            if self.skip == 0
                && let Some(block) = self.open.take_if(|block| block.is_last_frame)
            {
                self.turn += block.bytes;
            }
            if self.open.is_none() {
                scanned.whole = scanned.read;
            }
        }
        Ok(scanned)
    }

    fn begin_frame(&mut self) -> Result<(), TooLarge> {
        let [long, high, low, kind, flags, stream @ ..] = self.header;
        self.skip = u32::from_be_bytes([0, long, high, low]) as usize;
        let stream = u32::from_be_bytes(stream) & (u32::MAX >> 1);
        let is_last_frame = flags & END_HEADERS != 0;
        let bytes = self.skip + FRAME_HEADER;
        match (kind, &mut self.open) {
            (HEADERS, None) => {
                let is_trailers = stream <= self.last_stream;
                self.last_stream = self.last_stream.max(stream);
                self.open = Some(Block { bytes, is_trailers, is_last_frame });
            }
            (CONTINUATION, Some(block)) => {
                block.bytes += bytes;
                block.is_last_frame = is_last_frame;
            }
            // Nothing may come between the frames of a block; h2 ends the connection.
            (_, open @ Some(_)) => *open = None,
            (_, None) => {}
        }
        match &self.open {
            Some(block) if block.is_trailers && block.bytes > MAX_TRAILERS + FRAME_HEADER => {
                Err(TooLarge::Trailers)
            }
            Some(block) if block.bytes > self.max => Err(TooLarge::Head),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX: usize = 4096;
    const DATA: u8 = 0;

    fn frame(kind: u8, flags: u8, stream: u32, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        [head, vec![b'x'; payload]].concat()
    }

    fn connection(frames: &[Vec<u8>]) -> Vec<u8> {
        [&[0; PREFACE][..], &frames.concat()].concat()
    }

    /// Returns the bytes that are handed on if these come in pieces of this size.
    fn handed_on(bytes: &[u8], piece: usize) -> Result<(usize, bool), TooLarge> {
        let mut blocks = HeadBlocks::new(MAX);
        let (mut read, mut whole) = (0, 0);
        while read < bytes.len() {
            blocks.begin_turn();
            let end = (read + piece).min(bytes.len());
            let scanned = blocks.scan(&bytes[read..end])?;
            if scanned.whole > 0 {
                whole = read + scanned.whole;
            }
            read += scanned.read;
        }
        Ok((whole, blocks.is_open()))
    }

    #[test]
    fn a_block_is_handed_on_when_it_is_whole() {
        let begun = connection(&[frame(DATA, 0, 0, 7), frame(HEADERS, 0, 1, 50)]);
        let before = PREFACE + FRAME_HEADER + 7;
        let whole = [begun.clone(), frame(CONTINUATION, END_HEADERS, 1, 10)].concat();
        let broken = [begun.clone(), frame(DATA, 0, 1, 10)].concat();
        for piece in 1..100 {
            // The first bytes of a frame header may be handed on before its kind is known.
            let (handed, is_open) = handed_on(&begun, piece).unwrap();
            assert!((before..before + FRAME_HEADER).contains(&handed) && is_open, "{piece}");
            assert_eq!(handed_on(&whole, piece), Ok((whole.len(), false)), "{piece}");
            assert_eq!(handed_on(&broken, piece), Ok((broken.len(), false)), "h2 refuses it");
        }
    }

    #[test]
    fn heads_and_trailers_have_bounds_of_their_own_however_many_frames_they_come_in() {
        let head = |bytes| frame(HEADERS, END_HEADERS, 1, bytes);
        let handed = |frames: &[Vec<u8>]| handed_on(&connection(frames), usize::MAX / 2);
        assert!(handed(&[head(MAX - FRAME_HEADER)]).is_ok());
        assert_eq!(handed(&[head(MAX)]), Err(TooLarge::Head));
        let endless = [vec![frame(HEADERS, 0, 1, 1)], vec![frame(CONTINUATION, 0, 1, 0); 500]];
        assert_eq!(handed(&endless.concat()), Err(TooLarge::Head));
        let trailers = |bytes| [head(50), head(bytes)];
        assert!(handed(&trailers(MAX_TRAILERS)).is_ok());
        assert_eq!(handed(&trailers(MAX_TRAILERS + 1)), Err(TooLarge::Trailers));
    }

    #[test]
    fn frames_that_visit_every_stream_are_counted_however_they_are_split() {
        let frames = [frame(SETTINGS, 0, 0, 6), frame(DATA, 0, 1, 9), frame(GOAWAY, 0, 0, 8)];
        let bytes = connection(&frames);
        for piece in 1..=bytes.len() {
            let mut blocks = HeadBlocks::new(MAX);
            let visits = bytes.chunks(piece).map(|piece| blocks.scan(piece).unwrap().visits);
            assert_eq!(visits.sum::<u32>(), 2, "{piece}");
        }
    }

    #[test]
    fn requests_are_taken_before_more_heads_are_handed_on() {
        let heads: Vec<_> = (0..20).map(|n| frame(HEADERS, END_HEADERS, 2 * n + 1, 91)).collect();
        let bytes = connection(&heads);
        let mut blocks = HeadBlocks::new(MAX);
        let scanned = blocks.scan(&bytes).unwrap();
        assert_eq!(scanned, Scanned { read: PREFACE + 600, whole: PREFACE + 600, visits: 0 });
        assert!(blocks.is_turn_over());
        blocks.begin_turn();
        assert_eq!(blocks.scan(&bytes[scanned.read..]).unwrap().read, 600);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic_and_in_any_pieces_alike(
            frames in prop::collection::vec((0..11_u8, any::<u8>(), 0..9_u32, 0..200_usize), 0..20),
            piece in 1..300_usize,
        ) {
            let frames: Vec<_> =
                frames.into_iter().map(|(kind, flags, stream, len)| frame(kind, flags, stream, len)).collect();
            let bytes = connection(&frames);
            let (whole, pieces) = (handed_on(&bytes, bytes.len()), handed_on(&bytes, piece));
            prop_assert_eq!(whole.map(|(_, open)| open), pieces.map(|(_, open)| open));
        }
    }
}
