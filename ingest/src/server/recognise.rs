//! Recognises the first bytes of a connection or a request.

use std::io;

use push_boot::proxy_protocol;
use tokio::io::AsyncReadExt;

use super::{connection::Connection, timeouts::Interruption};
use crate::metrics::ProxyClaim;

/// The first bytes of an HTTP/2 connection with prior knowledge (RFC 9113 section 3.4).
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The size of a read until the protocol is known, in bytes.
const FIRST_READ: usize = 4096;

/// Returns true if a new connection is HTTP/2. It is read from until that is known.
pub(super) async fn is_http2(connection: &mut Connection) -> Result<bool, Interruption<io::Error>> {
    let Connection { stream, received, activity, interruptions, .. } = connection;
    while received.len() < H2_PREFACE.len() && H2_PREFACE.starts_with(received) {
        received.reserve(FIRST_READ);
        if interruptions.run(stream.read_buf(received)).await? == 0 {
            break;
        }
        activity.received();
    }
    Ok(received.starts_with(H2_PREFACE))
}

/// Returns true if a connection begins with a header of the PROXY protocol, and counts it. One from a
/// trusted proxy was read before.
pub(super) fn is_proxy_header(connection: &Connection) -> bool {
    let is_header = proxy_protocol::is_header(&connection.received);
    if is_header {
        connection.handlers.metrics().untrusted_proxy(ProxyClaim::Protocol);
    }
    is_header
}

/// Counts the bytes of empty lines at the beginning. Some clients send one after a body,
/// and it belongs to no request (RFC 9112 section 2.2).
pub(super) fn empty_lines(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let [b'\n', after @ ..] | [b'\r', b'\n', after @ ..] = rest {
        rest = after;
    }
    bytes.len() - rest.len()
}
