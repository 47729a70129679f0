//! Frames of HTTP/2 that are written by hand: a client of a library sends none that are against the rules.

// Frame types, flags and error codes of RFC 9113 (sections 6 and 7).
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const CANCEL: [u8; 4] = [0, 0, 0, 8];
pub(crate) const ENHANCE_YOUR_CALM: [u8; 4] = [0, 0, 0, 11];
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame (RFC 9113 section 4.1).
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A field of a head, as it is: without the tables and the codes of HPACK (RFC 7541 section 6.2.2).
/// Name and value have fewer than 127 bytes each.
pub(crate) fn field(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}

/// The head of a request with these fields besides those that every request has.
pub(crate) fn head(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let begin = [(":method", method), (":scheme", "http"), (":authority", "push"), (":path", path)];
    begin.iter().chain(more).flat_map(|(name, value)| field(name, value)).collect()
}
