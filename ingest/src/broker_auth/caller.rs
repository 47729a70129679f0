//! Checks that a request is from a broker, by the secret in its `Authorization` header.
//!
//! The secret stands there by itself, as an app's does, or as the token of `Bearer`, or as the
//! password of `Basic`. The last is for `mosquitto-go-auth`, which sends no headers of the
//! operator's, but does send what stands before `@` in the host of its URL.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use push_model::secret::SecretHash;

use super::decision::Refusal;
use crate::head::Head;

pub(super) fn check(head: &Head<'_>, secret: &SecretHash) -> Result<(), Refusal> {
    let presented = head.authorization.map(presented).unwrap_or_default();
    if secret.verify(&presented) { Ok(()) } else { Err(Refusal::Caller) }
}

/// The secret of this header.
fn presented(authorization: &[u8]) -> Vec<u8> {
    let Some(space) = authorization.iter().position(|b| *b == b' ') else {
        return authorization.to_vec();
    };
    let (scheme, rest) = (&authorization[..space], authorization[space..].trim_ascii());
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return rest.to_vec();
    }
    if scheme.eq_ignore_ascii_case(b"basic") {
        let login = BASE64_STANDARD.decode(rest).unwrap_or_default();
        let password = login.splitn(2, |b| *b == b':').nth(1);
        return password.unwrap_or_default().to_vec();
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_stands_alone_or_in_one_of_two_schemes() {
        for header in
            [&b"s3cret"[..], b"Bearer s3cret", b"bearer  s3cret", b"Basic YnJva2VyOnMzY3JldA=="]
        {
            assert_eq!(presented(header), b"s3cret", "{header:?}");
        }
        for header in
            [&b""[..], b"Digest s3cret", b"Basic ", b"Basic s3cret", b"Basic YnJva2Vy", b" "]
        {
            assert_eq!(presented(header), b"", "{header:?}");
        }
    }
}
