//! The chunked transfer coding (RFC 9112 section 7.1), read strictly: every line ends with CRLF and has no
//! control characters but tabs. A size is hexadecimal digits, with blanks after it only before an extension.
//! Extensions and trailers are bounded and dropped.

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderName;

/// The most bytes of extensions and trailers of a body.
const MAX_OVERHEAD: usize = 16 * 1024;
/// The most digits of the size of a chunk.
const MAX_DIGITS: usize = 16;
/// The longest line, in bytes.
const MAX_LINE: usize = 4096;

/// Decodes a body from the bytes that arrive.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    /// The bytes that have arrived and are not decoded yet; behind the end of the body, those of the next
    /// request.
    pub(super) buffer: BytesMut,
    next: Next,
    overhead: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The line with the size of a chunk.
    #[default]
    Size,
    /// The data of a chunk, of which so many bytes are missing.
    Data(u64),
    /// The end of the line behind the data of a chunk.
    DataEnd,
    /// A trailer, or the empty line that ends the body.
    Trailer,
    /// Nothing: the body has ended.
    End,
}

/// The bytes are not chunks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotChunks;

/// The result of decoding the bytes that have arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// A part of the body.
    Data(Bytes),
    /// The body has ended.
    End,
    /// Nothing before more bytes arrive.
    Partial,
}

impl Chunks {
    /// Decodes a body whose first bytes are these, perhaps with bytes of the next request after it.
    pub(super) fn new(received: &[u8]) -> Self {
        Self { buffer: received.into(), ..Self::default() }
    }

    /// Returns true if the body has ended.
    pub(super) fn is_ended(&self) -> bool {
        self.next == Next::End
    }

    /// Decodes what comes next in the buffer.
    pub(super) fn decode(&mut self) -> Result<Decoded, NotChunks> {
        loop {
            match self.next {
                Next::Size => {
                    let Some(line) = self.line()? else { return Ok(Decoded::Partial) };
                    let (size, extensions) = split_size(&line)?;
                    self.spend(extensions)?;
                    self.next = if size == 0 { Next::Trailer } else { Next::Data(size) };
                }
                Next::Data(missing) => {
                    if self.buffer.is_empty() {
                        return Ok(Decoded::Partial);
                    }
                    let here = usize::try_from(missing).unwrap_or(usize::MAX);
                    let here = here.min(self.buffer.len());
                    // Copied, so that a few bytes never hold a whole buffer.
                    let data = Bytes::copy_from_slice(&self.buffer[..here]);
                    self.buffer.advance(here);
                    self.next = match missing - here as u64 {
                        0 => Next::DataEnd,
                        missing => Next::Data(missing),
                    };
                    return Ok(Decoded::Data(data));
                }
                Next::DataEnd => {
                    let Some(line) = self.line()? else { return Ok(Decoded::Partial) };
                    if !line.is_empty() {
                        return Err(NotChunks);
                    }
                    self.next = Next::Size;
                }
                Next::Trailer => {
                    let Some(line) = self.line()? else { return Ok(Decoded::Partial) };
                    self.spend(line.len())?;
                    if line.is_empty() {
                        self.next = Next::End;
                    } else {
                        let name = line[..].split(|&b| b == b':').next().unwrap_or_default();
                        let is_header =
                            name.len() < line.len() && HeaderName::from_bytes(name).is_ok();
                        if !is_header {
                            return Err(NotChunks);
                        }
                    }
                }
                Next::End => return Ok(Decoded::End),
            }
        }
    }

    /// Takes a line from the buffer, without its end. Returns `None` if its end has not arrived.
    fn line(&mut self) -> Result<Option<BytesMut>, NotChunks> {
        let Some(end) = self.buffer.iter().take(MAX_LINE).position(|&b| b == b'\n') else {
            let is_too_long = self.buffer.len() >= MAX_LINE;
            // A client that sent too much data may wait for an answer, and send no end of the line.
            let is_data = self.next == Next::DataEnd && !b"\r".starts_with(&self.buffer);
            return if is_too_long || is_data { Err(NotChunks) } else { Ok(None) };
        };
        let mut line = self.buffer.split_to(end + 1);
        line.truncate(end);
        if line.last() != Some(&b'\r') {
            return Err(NotChunks);
        }
        line.truncate(end - 1);
        let is_text = line.iter().all(|&b| b == b'\t' || !b.is_ascii_control());
        if is_text { Ok(Some(line)) } else { Err(NotChunks) }
    }

    fn spend(&mut self, bytes: usize) -> Result<(), NotChunks> {
        self.overhead += bytes;
        if self.overhead > MAX_OVERHEAD { Err(NotChunks) } else { Ok(()) }
    }
}

/// The size of a chunk, and the number of bytes of its extensions, which are ignored.
fn split_size(line: &[u8]) -> Result<(u64, usize), NotChunks> {
    let digits = line.iter().position(|b| !b.is_ascii_hexdigit()).unwrap_or(line.len());
    let (size, extensions) = line.split_at(digits);
    let blanks = extensions.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
    let are_extensions = extensions.is_empty() || extensions[blanks..].starts_with(b";");
    if digits > MAX_DIGITS || !are_extensions {
        return Err(NotChunks);
    }
    let size = str::from_utf8(size).ok().and_then(|size| u64::from_str_radix(size, 16).ok());
    Ok((size.ok_or(NotChunks)?, extensions.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    type BodyAndRest = (Vec<u8>, Vec<u8>);

    /// Decodes bytes that arrive in pieces of this size. Returns the body and the bytes after it.
    fn decode(bytes: &[u8], piece: usize) -> Result<Option<BodyAndRest>, NotChunks> {
        let (mut chunks, mut body) = (Chunks::default(), Vec::new());
        let mut pieces = bytes.chunks(piece);
        loop {
            match chunks.decode()? {
                Decoded::Data(data) => body.extend_from_slice(&data),
                Decoded::End => {
                    pieces.for_each(|piece| chunks.buffer.extend_from_slice(piece));
                    return Ok(Some((body, chunks.buffer.to_vec())));
                }
                Decoded::Partial => match pieces.next() {
                    Some(piece) => chunks.buffer.extend_from_slice(piece),
                    None => return Ok(None),
                },
            }
        }
    }

    #[test]
    fn a_chunked_body_is_the_data_of_its_chunks_however_it_is_cut() {
        for bytes in [
            &b"5\r\nhello\r\n0\r\n\r\nGET /"[..],
            b"1\r\nh\r\n004\r\nello\r\n000\r\n\r\nGET /",
            b"5;name=\"value\" ; other\r\nhello\r\n0 \t;\tx\r\nTrailer: ignored\r\n\r\nGET /",
        ] {
            for piece in 1..bytes.len() {
                let decoded = Ok(Some((b"hello".to_vec(), b"GET /".to_vec())));
                assert_eq!(decode(bytes, piece), decoded, "{piece}");
            }
            for end in 0..bytes.len() - 5 {
                assert_eq!(decode(&bytes[..end], 3), Ok(None), "{end}");
            }
        }
    }

    #[test]
    fn a_chunk_that_two_readers_may_read_differently_is_refused() {
        for bytes in [
            &b"5\nhello\r\n0\r\n\r\n"[..],
            b"5\r\nhello\n0\r\n\r\n",
            b"5\r\nhello0\r\n\r\n",
            b"5\r\nhelloo\r\n0\r\n\r\n",
            b"0x5\r\nhello\r\n0\r\n\r\n",
            b"+5\r\nhello\r\n0\r\n\r\n",
            b"-5\r\nhello\r\n0\r\n\r\n",
            b" 5\r\nhello\r\n0\r\n\r\n",
            b"5 5\r\nhello\r\n0\r\n\r\n",
            b"5 \r\nhello\r\n0\r\n\r\n",
            b"5\t\r\nhello\r\n0\r\n\r\n",
            b"5\x0c;x\r\nhello\r\n0\r\n\r\n",
            b"5;\0\r\nhello\r\n0\r\n\r\n",
            b"5;x=\"\x7f\"\r\nhello\r\n0\r\n\r\n",
            b"5\r\nhello\r\n0 \r\n\r\n",
            b"\r\nhello\r\n0\r\n\r\n",
            b";x\r\n\r\n",
            b"5;x\ry\r\nhello\r\n0\r\n\r\n",
            b"10000000000000000\r\n",
            b"00000000000000005\r\nhello\r\n0\r\n\r\n",
            b"0\r\nno trailer\r\n\r\n",
            b"0\r\nTrailer: x\n\r\n",
        ] {
            assert_eq!(decode(bytes, bytes.len()), Err(NotChunks), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn extensions_and_trailers_have_a_bound() {
        let long = [b"1;".as_slice(), &[b'x'; MAX_LINE]].concat();
        assert_eq!(decode(&long, 1000), Err(NotChunks));
        let extension = [b"1;".as_slice(), &[b'x'; 1000], b"\r\nx\r\n"].concat();
        let with = |extensions| [extension.repeat(extensions), b"0\r\n\r\n".to_vec()].concat();
        assert!(decode(&with(16), 1000).is_ok());
        assert_eq!(decode(&with(17), 1000), Err(NotChunks));
        let trailers = [b"0\r\n".to_vec(), b"A: trailer\r\n".repeat(2000)].concat();
        assert_eq!(decode(&trailers, 1000), Err(NotChunks));
    }
}
