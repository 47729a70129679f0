//! Signed JSON Web Tokens in compact form (RFC 7515, section 7.1).

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Serialize;

/// Writes a token. `sign` returns the signature of the bytes that it is given, or `None` if the key cannot
/// sign; then the result is `None`.
pub(crate) fn signed(
    header: &impl Serialize,
    claims: &impl Serialize,
    sign: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
) -> Option<String> {
    let mut token = String::new();
    URL_SAFE_NO_PAD.encode_string(serde_json::to_vec(header).ok()?, &mut token);
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(serde_json::to_vec(claims).ok()?, &mut token);
    let signature = sign(token.as_bytes())?;
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(signature, &mut token);
    Some(token)
}
