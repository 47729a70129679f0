//! The fingerprint of a push with an `Idempotency-Key`: by it a key that comes again with another
//! body is recognised.
//!
//! It covers what the request means: type, content, hints, audience and time to live. So a body that is
//! written in another way (order of fields, white space, escapes, repeated or reordered client ids,
//! unknown fields, fields without effect) is the same, and `dry_run` does not count.
//!
//! It is the upper half of the deduplication nonce, whose lower half is random and tells copies of
//! one message apart. So the ledger keeps it with the nonce that it has anyway. A push without a key
//! has the nonce 0, and no fingerprint.

use std::num::NonZeroU32;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::{
    hints::{Hints, Priority},
    localized::Localized,
    message::{Audience, Notification, Payload},
    text::Literal,
    time::UnixMillis,
};

/// The digest that pushes with the same key must have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(NonZeroU32);

impl Fingerprint {
    /// Computes the fingerprint of a push, from what a device receives and the audience.
    pub fn of(payload: &Payload<'_>, audience: &Audience, localized: Option<&Localized>) -> Self {
        let mut hash = Hash(Sha256::new());
        hash.number(u64::from(payload.kind));
        // A time that was cut to the latest one says nothing about the time to live.
        hash.number(match payload.expires_at {
            UnixMillis::MAX => u64::MAX,
            end => end.0.saturating_sub(payload.accepted_at.0),
        });
        hash.notification(payload.notification.as_ref());
        hash.number(payload.data.as_ref().map_or(0, |data| data.len() as u64));
        for (key, value) in payload.data.iter().flatten() {
            hash.text(Some(key));
            hash.text(Some(value));
        }
        hash.hints(&payload.hints);
        hash.audience(audience);
        hash.json(localized);
        let digest: [u8; 32] = hash.0.finalize().into();
        let bits = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
        Self(NonZeroU32::new(bits).unwrap_or(NonZeroU32::MIN))
    }

    /// The deduplication nonce of a copy of the push.
    pub fn nonce(self, random: u32) -> u64 {
        u64::from(self.0.get()) << 32 | u64::from(random)
    }

    /// The fingerprint in a deduplication nonce; none if the push has no key.
    pub fn of_nonce(nonce: u64) -> Option<Self> {
        u32::try_from(nonce >> 32).ok().and_then(NonZeroU32::new).map(Self)
    }

    /// Returns true if copies of a message with these nonces were made of different bodies.
    pub fn differs(one: u64, other: u64) -> bool {
        let both = Self::of_nonce(one).zip(Self::of_nonce(other));
        both.is_some_and(|(one, other)| one != other)
    }
}

/// Takes values one after the other, each with its length, so that no two lists of values are the
/// same bytes.
struct Hash(Sha256);

impl Hash {
    fn number(&mut self, number: u64) {
        self.0.update(number.to_be_bytes());
    }

    fn text(&mut self, text: Option<&str>) {
        match text {
            None => self.number(u64::MAX),
            Some(text) => {
                self.number(u64::try_from(text.len()).unwrap_or(u64::MAX - 1));
                self.0.update(text);
            }
        }
    }

    /// Something whose JSON has one form. Nothing is hashed where there is none.
    fn json(&mut self, value: Option<&(impl Serialize + ?Sized)>) {
        if let Some(value) = value {
            self.text(serde_json::to_string(value).ok().as_deref());
        }
    }

    fn notification(&mut self, notification: Option<&Notification<'_>>) {
        let Some(notification) = notification else { return };
        let Notification {
            notification_type,
            title,
            desc,
            icon,
            button_text,
            small_icon,
            small_icon_color,
            open_type,
            open_content,
        } = notification;
        self.number(u64::from(*notification_type));
        self.number(open_type.map_or(u64::MAX, u64::from));
        let texts = [title, desc, icon, button_text, small_icon, small_icon_color, open_content];
        for text in texts {
            self.text(text.as_ref().map(Literal::text).as_deref());
        }
    }

    fn hints(&mut self, hints: &Hints<'_>) {
        let Hints { priority, collapse_key, channel_id, category, image, sound, badge } = hints;
        self.number(match priority {
            None => 0,
            Some(Priority::Normal) => 1,
            Some(Priority::High) => 2,
        });
        for text in [collapse_key, channel_id, category, image, sound] {
            self.text(text.as_deref());
        }
        self.number(badge.map_or(u64::MAX, u64::from));
    }

    /// Client ids and targeting values are sorted and without repeats.
    fn audience(&mut self, audience: &Audience) {
        match audience {
            Audience::All => self.text(Some("all")),
            Audience::Targeting(targeting) => {
                self.text(Some("targeting"));
                for (attribute, wanted) in targeting.criteria() {
                    self.text(Some(attribute.name()));
                    wanted.iter().for_each(|value| self.text(Some(value)));
                    self.text(None);
                }
                self.json(targeting.filter.as_deref());
                self.json(targeting.sample.as_ref());
            }
            // The users, and not the devices that they have at the moment.
            Audience::Users(named) => {
                self.text(Some("users"));
                self.json(Some(named.directly_named()));
                named.users.iter().for_each(|(user, _)| self.text(Some(user.as_str())));
                self.text(None);
            }
            Audience::Clients(clients) => {
                self.text(Some("clients"));
                self.number(clients.len() as u64);
                clients.iter().for_each(|client| self.text(Some(client.as_str())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::MessageId;

    #[test]
    fn a_nonce_carries_its_fingerprint_and_tells_copies_apart() {
        let [one, other] = [5, u32::MAX].map(|bits| Fingerprint(NonZeroU32::new(bits).unwrap()));
        assert_eq!(Fingerprint::of_nonce(one.nonce(u32::MAX)), Some(one));
        assert_ne!(one.nonce(1), one.nonce(2));
        assert!(!Fingerprint::differs(one.nonce(1), one.nonce(2)));
        assert!(Fingerprint::differs(one.nonce(1), other.nonce(1)));
        assert!(!Fingerprint::differs(one.nonce(1), 0), "a push without a key has no fingerprint");
    }

    #[test]
    fn pushes_with_different_hints_have_different_fingerprints() {
        let app: crate::ids::AppId = "a".parse().unwrap();
        let of = |hints: &str| {
            let payload = Payload {
                message_id: MessageId::issue_named(&app),
                app_id: app.clone(),
                kind: 2,
                notification: None,
                data: None,
                hints: serde_json::from_str(hints).unwrap(),
                accepted_at: UnixMillis(1),
                sequence: 1,
                expires_at: UnixMillis(2),
            };
            Fingerprint::of(&payload, &Audience::All, None)
        };
        let hints = [
            "{}",
            r#"{"priority":"normal"}"#,
            r#"{"priority":"high"}"#,
            r#"{"collapse_key":"a"}"#,
            r#"{"channel_id":"a"}"#,
            r#"{"category":"a"}"#,
            r#"{"image":"a"}"#,
            r#"{"sound":"a"}"#,
            r#"{"badge":0}"#,
            r#"{"badge":1}"#,
        ];
        for (place, one) in hints.iter().enumerate() {
            assert_eq!(of(one), of(one));
            assert!(hints[..place].iter().all(|other| of(one) != of(other)), "{one}");
        }
    }
}
