//! The form in which the index keeps a Web Push subscription, as far as others than its provider read it.
//!
//! | characters | content |
//! |---|---|
//! | 1 | how the endpoint begins, of [`BEGINNINGS`] |
//! | [`KEYS_LEN`] | the coordinates of the key `p256dh` and the secret `auth`, in base64url |
//! | rest | the rest of the endpoint |

use sha2::{Digest as _, Sha256};

/// The characters of the key and the secret.
pub const KEYS_LEN: usize = 107;

/// The beginnings of endpoints, each with the character that stands for it. The characters are stored, so
/// none is ever used again. A longer beginning precedes a shorter one that it contains.
pub const BEGINNINGS: [(&str, &str); 5] = [
    ("f", "https://fcm.googleapis.com/fcm/send/"),
    ("m", "https://updates.push.services.mozilla.com/wpush/v2/"),
    ("a", "https://web.push.apple.com/"),
    ("s", "https://"),
    ("h", "http://"),
];

/// Cuts a stored subscription into the beginning of its endpoint, its keys, and the rest of its endpoint. None if it is
/// damaged.
pub fn parts(stored: &str) -> Option<(&'static str, &str, &str)> {
    let (code, rest) = stored.split_at_checked(1)?;
    let (keys, rest) = rest.split_at_checked(KEYS_LEN)?;
    let (_, beginning) = BEGINNINGS.iter().find(|(known, _)| *known == code)?;
    Some((beginning, keys, rest))
}

/// The origin of a push service.
#[derive(Debug, Clone, Copy)]
pub(super) struct PushService<'a> {
    scheme: &'static str,
    authority: &'a str,
}

/// The push service of a stored subscription. None if it is damaged.
pub(super) fn push_service(stored: &str) -> Option<PushService<'_>> {
    let (beginning, _, rest) = parts(stored)?;
    let (scheme, known) = beginning.split_once("://")?;
    let authority = if known.is_empty() { rest } else { known };
    let (authority, _) = authority.split_once('/')?;
    Some(PushService { scheme, authority })
}

impl<'a> PushService<'a> {
    pub(super) fn has_tls(&self) -> bool {
        self.scheme == "https"
    }

    /// The host, and the port unless it is the usual one.
    pub(super) fn authority(&self) -> &'a str {
        self.authority
    }

    /// A number that never changes.
    pub(super) fn hash(&self) -> u8 {
        let mut digest = Sha256::new();
        digest.update(self.scheme);
        digest.update(self.authority);
        let digest: [u8; 32] = digest.finalize().into();
        digest[0]
    }
}
