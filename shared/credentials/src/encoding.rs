//! The encodings of RFC 7515 and RFC 7468.

use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};

/// Base64 for JWS and JWK: URL-safe, without padding.
pub(crate) fn base64url(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// Appends to `out` what [`base64url`] returns.
pub(crate) fn push_base64url(out: &mut String, bytes: &[u8]) {
    BASE64_URL_SAFE_NO_PAD.encode_string(bytes, out);
}

/// Reads what [`base64url`] wrote; other spellings of the same bytes are refused.
pub(crate) fn from_base64url(text: &[u8]) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text).ok()
}

/// A PEM block (RFC 7468).
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let mut out = format!("-----BEGIN {label}-----\n");
    let body = BASE64_STANDARD.encode(der);
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        out.push_str(line);
        out.push('\n');
        rest = after;
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}
