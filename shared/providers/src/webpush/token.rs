//! A subscription of a browser or a UnifiedPush app.
//!
//! A device registers the JSON of its `PushSubscription` (W3C Push API), about 365 bytes. The index keeps a
//! shorter form, about 260 bytes ([`subscription`]).

use std::fmt;

use push_model::{
    device::subscription::{self, BEGINNINGS, KEYS_LEN},
    text::Text,
};
use ring::{
    agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral},
    rand::SecureRandom,
};
use serde::{Deserialize, Serialize};

use crate::{BadToken, base64url, outside};

/// The longest endpoint, in bytes (UnifiedPush).
const MAX_ENDPOINT_LEN: usize = 1000;

const SUBSCRIPTION: BadToken = BadToken {
    expected: "must be the JSON of a PushSubscription, with endpoint, keys.p256dh and keys.auth",
};
const ENDPOINT: BadToken = BadToken {
    expected: "must have an https: endpoint (http: in a network that the operator allows) of at most 1000 \
               bytes, without user name and fragment",
};
const P256DH: BadToken = BadToken {
    expected: "must have as keys.p256dh an uncompressed point on the curve P-256, in base64url",
};
const AUTH: BadToken = BadToken { expected: "must have as keys.auth 16 bytes, in base64url" };
const STORED: BadToken = BadToken { expected: "must be a subscription as the index keeps it" };

/// A subscription. Its `Debug` form shows the origin of the push service alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    endpoint: Box<str>,
    origin_len: usize,
    /// The public key of the device: `04`, x, y.
    pub(super) p256dh: [u8; 65],
    /// The secret that the device shares with its app.
    pub(super) auth: [u8; 16],
}

#[derive(Deserialize, Serialize)]
struct Subscription<'a> {
    #[serde(borrow)]
    endpoint: Text<'a>,
    #[serde(borrow)]
    keys: Keys<'a>,
}

#[derive(Deserialize, Serialize)]
struct Keys<'a> {
    #[serde(borrow)]
    p256dh: Text<'a>,
    #[serde(borrow)]
    auth: Text<'a>,
}

impl Token {
    /// Reads and checks the JSON of a subscription.
    ///
    /// # Errors
    /// If nothing can be sent to it.
    pub(super) fn registered(text: &str, random: &dyn SecureRandom) -> Result<Self, BadToken> {
        let Subscription { endpoint, keys } =
            serde_json::from_str(text).map_err(|_| SUBSCRIPTION)?;
        let endpoint = outside::outside_url(&endpoint).ok_or(ENDPOINT)?;
        if endpoint.as_str().len() > MAX_ENDPOINT_LEN {
            return Err(ENDPOINT);
        }
        let p256dh = base64url::decode_array(&keys.p256dh).ok_or(P256DH)?;
        if !is_on_curve(&p256dh, random) {
            return Err(P256DH);
        }
        let auth = base64url::decode_array(&keys.auth).ok_or(AUTH)?;
        let origin_len = outside::split(&endpoint).0.len();
        Ok(Self { endpoint: String::from(endpoint).into(), origin_len, p256dh, auth })
    }

    /// Writes the form that the index keeps.
    pub(super) fn stored(&self) -> String {
        let beginning = BEGINNINGS.iter().find_map(|(code, beginning)| {
            self.endpoint.strip_prefix(beginning).map(|rest| (code, rest))
        });
        // Every endpoint begins with one of the last two.
        let (code, rest) = beginning.unwrap_or((&"", &*self.endpoint));
        let mut keys = [0; 80];
        keys[..64].copy_from_slice(&self.p256dh[1..]);
        keys[64..].copy_from_slice(&self.auth);
        let mut text = String::with_capacity(1 + KEYS_LEN + rest.len());
        text.push_str(code);
        base64url::encode_into(&keys, &mut text);
        text.push_str(rest);
        text
    }

    /// Reads what [`Token::stored`] wrote. The encryption checks that the key is on the curve.
    ///
    /// # Errors
    /// If the text is damaged.
    pub(super) fn read(stored: &str) -> Result<Self, BadToken> {
        Self::parse(stored).ok_or(STORED)
    }

    fn parse(stored: &str) -> Option<Self> {
        let (beginning, keys, rest) = subscription::parts(stored)?;
        let keys: [u8; 80] = base64url::decode_array(keys)?;
        let mut p256dh = [4; 65];
        p256dh[1..].copy_from_slice(&keys[..64]);
        let mut auth = [0; 16];
        auth.copy_from_slice(&keys[64..]);
        let mut endpoint = String::with_capacity(beginning.len() + rest.len());
        endpoint.push_str(beginning);
        endpoint.push_str(rest);
        let scheme_len = endpoint.find("://")? + "://".len();
        let origin_len = scheme_len + endpoint.get(scheme_len..)?.find('/')?;
        Some(Self { endpoint: endpoint.into(), origin_len, p256dh, auth })
    }

    /// Writes the JSON of the subscription.
    pub(super) fn shown(&self) -> String {
        let keys = Keys {
            p256dh: base64url::encode(&self.p256dh).into(),
            auth: base64url::encode(&self.auth).into(),
        };
        let subscription = Subscription { endpoint: (&*self.endpoint).into(), keys };
        // Strings and structs always serialize.
        serde_json::to_string(&subscription).unwrap_or_default()
    }

    /// The origin of the push service.
    pub fn origin(&self) -> &str {
        self.endpoint.get(..self.origin_len).unwrap_or_default()
    }

    /// The path of the endpoint, with the query.
    pub fn path(&self) -> &str {
        self.endpoint.get(self.origin_len..).unwrap_or_default()
    }
}

/// Returns true if a key can be agreed on with this public key, which only a point on the curve allows.
fn is_on_curve(p256dh: &[u8; 65], random: &dyn SecureRandom) -> bool {
    EphemeralPrivateKey::generate(&ECDH_P256, random)
        .and_then(|key| agree_ephemeral(key, &UnparsedPublicKey::new(&ECDH_P256, p256dh), |_| ()))
        .is_ok()
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("origin", &self.origin()).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use ring::rand::SystemRandom;
    use serde_json::json;

    use super::*;

    /// The key and the secret of the device in RFC 8291, section 5.
    pub(in crate::webpush) const EXAMPLE_KEY: &str =
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
    pub(in crate::webpush) const EXAMPLE_AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

    pub(in crate::webpush) fn subscription(endpoint: &str) -> String {
        let keys = json!({ "p256dh": EXAMPLE_KEY, "auth": EXAMPLE_AUTH });
        json!({ "endpoint": endpoint, "expirationTime": null, "keys": keys }).to_string()
    }

    pub(in crate::webpush) fn registered(text: &str) -> Result<Token, BadToken> {
        Token::registered(text, &SystemRandom::new())
    }

    #[test]
    fn a_subscription_comes_back_from_its_stored_form() {
        for (endpoint, origin, path) in [
            (
                "https://fcm.googleapis.com/fcm/send/a:b",
                "https://fcm.googleapis.com",
                "/fcm/send/a:b",
            ),
            ("https://fcm.googleapis.com/wp/a:b", "https://fcm.googleapis.com", "/wp/a:b"),
            (
                "https://updates.push.services.mozilla.com/wpush/v2/gA",
                "https://updates.push.services.mozilla.com",
                "/wpush/v2/gA",
            ),
            ("https://web.push.apple.com/Q", "https://web.push.apple.com", "/Q"),
            ("https://ntfy.example:8443/up?up=1", "https://ntfy.example:8443", "/up?up=1"),
            ("http://127.0.0.1:9/push", "http://127.0.0.1:9", "/push"),
            ("http://[::1]:9/", "http://[::1]:9", "/"),
        ] {
            let token = registered(&subscription(endpoint)).unwrap();
            let stored = token.stored();
            assert!(stored.len() <= 1 + KEYS_LEN + endpoint.len(), "{stored}");
            assert!(stored.is_ascii() && !stored.contains(|c: char| c.is_ascii_control()));
            assert_eq!(Token::read(&stored).unwrap(), token);
            assert_eq!((token.origin(), token.path()), (origin, path));
            let shown = token.shown();
            assert_eq!(registered(&shown).unwrap(), token, "{shown}");
            assert!(shown.contains(endpoint), "{shown}");
        }
    }

    #[test]
    fn the_stored_form_of_a_usual_subscription_is_short() {
        let endpoint = format!("https://fcm.googleapis.com/fcm/send/{}", "x".repeat(152));
        let text = subscription(&endpoint);
        assert_eq!(text.len(), 365);
        assert_eq!(registered(&text).unwrap().stored().len(), 260);
    }

    #[test]
    fn two_spellings_of_a_subscription_are_stored_alike() {
        let one = subscription("https://PUSH.example:443/a");
        let padded = one.replace(EXAMPLE_AUTH, &format!("{EXAMPLE_AUTH}=="));
        let other = padded.replace("PUSH.example:443", "push.example");
        assert_eq!(registered(&one).unwrap().stored(), registered(&other).unwrap().stored());
    }

    #[test]
    fn a_subscription_that_nothing_can_be_sent_to_is_refused_with_what_is_expected() {
        let good = subscription("https://push.example/a");
        let with = |from: &str, to: &str| good.replace(from, to);
        let long = format!("https://push.example/{}", "a".repeat(980));
        let off_curve = EXAMPLE_KEY.replace("iw4", "iw8");
        for (text, problem) in [
            (String::new(), SUBSCRIPTION),
            ("https://push.example/a".into(), SUBSCRIPTION),
            ("[]".into(), SUBSCRIPTION),
            (with("p256dh", "p256"), SUBSCRIPTION),
            (with("\"auth\"", "\"x\""), SUBSCRIPTION),
            (with("https://push.example/a", "ftp://push.example/a"), ENDPOINT),
            (with("https://push.example/a", "https://u:p@push.example/a"), ENDPOINT),
            (with("https://push.example/a", &long), ENDPOINT),
            (with(EXAMPLE_KEY, &EXAMPLE_KEY[..80]), P256DH),
            (with(EXAMPLE_KEY, &off_curve), P256DH),
            (with(EXAMPLE_KEY, &format!("A{}", &EXAMPLE_KEY[1..])), P256DH),
            (with(EXAMPLE_AUTH, &EXAMPLE_AUTH[..20]), AUTH),
            (with(EXAMPLE_AUTH, "!"), AUTH),
        ] {
            assert_eq!(registered(&text), Err(problem), "{text}");
        }
    }

    #[test]
    fn the_debug_form_shows_neither_the_path_nor_the_keys() {
        let token = registered(&subscription("https://push.example/secret")).unwrap();
        assert_eq!(format!("{token:?}"), r#"Token { origin: "https://push.example", .. }"#);
    }

    proptest! {
        #[test]
        fn no_text_makes_reading_panic(text in "\\PC*", good in any::<bool>(), at in 0..300_usize) {
            let stored = registered(&subscription("https://push.example/a")).unwrap().stored();
            let mut damaged = stored.clone();
            if good && damaged.is_char_boundary(at.min(damaged.len())) {
                damaged.insert_str(at.min(damaged.len()), &text);
            } else {
                damaged = text;
            }
            let _ = Token::read(&damaged);
            let _ = registered(&damaged);
        }
    }
}
