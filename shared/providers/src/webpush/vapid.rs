//! The token with which an app shows a push service who it is (RFC 8292): a JSON Web Token, signed with
//! ES256, for one origin.

use std::time::Duration;

use bytes::Bytes;
use push_model::time::UnixMillis;
use ring::rand::SecureRandom;
use serde::Serialize;

use super::account::Account;
use crate::{BadAccount, Bearer, jwt};

/// A token is replaced when the wall clock enters another span of this length, and ends with the one after.
/// So it is valid for 6 to 12 hours, all workers renew theirs at the same time, and a clock that is off by
/// hours makes no token that a push service refuses: the longest validity allowed is 24 hours.
const SPAN: Duration = Duration::from_hours(6);

#[derive(Serialize)]
struct Header {
    typ: &'static str,
    alg: &'static str,
}

#[derive(Serialize)]
struct Claims<'a> {
    aud: &'a str,
    exp: u64,
    sub: &'a str,
}

/// Signs a token for the push service at an origin.
///
/// # Errors
/// If the key cannot sign.
pub(super) fn authorize(
    account: &Account,
    origin: &str,
    now: UnixMillis,
    random: &dyn SecureRandom,
) -> Result<Bearer, BadAccount> {
    let span = SPAN.as_secs();
    let begins = now.0 / 1000 / span * span;
    let exp = begins + 2 * span;
    let claims = Claims { aud: origin, exp, sub: account.subject() };
    let token = jwt::signed(&Header { typ: "JWT", alg: "ES256" }, &claims, |signed| {
        account.sign(signed, random)
    });
    let token =
        token.ok_or_else(|| BadAccount { field: "private_key", problem: "cannot sign".into() })?;
    // Some readers of this header expect no space behind the comma.
    let value = format!("vapid t={token},k={}", account.public_key());
    Ok(Bearer {
        value: Bytes::from(value),
        renew_at: UnixMillis(0).plus_seconds(begins + span),
        expires_at: UnixMillis(0).plus_seconds(exp),
    })
}

#[cfg(test)]
mod tests {
    use ring::{
        rand::SystemRandom,
        signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey},
    };
    use serde_json::{Value, json};

    use super::{super::account::tests::account, *};
    use crate::base64url::decode;

    const HOUR: u64 = 3_600_000;
    const NOON: UnixMillis = UnixMillis(1_800_000_000_000);

    fn token(origin: &str, now: UnixMillis) -> Bearer {
        authorize(&account(), origin, now, &SystemRandom::new()).unwrap()
    }

    fn claims(bearer: &Bearer) -> Value {
        let value = std::str::from_utf8(&bearer.value).unwrap();
        let token = value.strip_prefix("vapid t=").unwrap().split_once(",k=").unwrap().0;
        serde_json::from_slice(&decode(token.split('.').nth(1).unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn a_token_is_signed_with_the_account_s_key_for_one_origin() {
        let bearer = token("https://push.example:8443", NOON);
        let value = std::str::from_utf8(&bearer.value).unwrap();
        let (token, key) = value.strip_prefix("vapid t=").unwrap().split_once(",k=").unwrap();
        assert_eq!(key, account().public_key());
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let header: Value =
            serde_json::from_slice(&decode(signed.split('.').next().unwrap()).unwrap()).unwrap();
        assert_eq!(header, json!({ "typ": "JWT", "alg": "ES256" }));
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, decode(key).unwrap())
            .verify(signed.as_bytes(), &decode(signature).unwrap())
            .unwrap();
        let claims = claims(&bearer);
        assert_eq!(claims["aud"], "https://push.example:8443");
        assert_eq!(claims["sub"], "mailto:push@app.example");
    }

    #[test]
    fn a_token_lasts_6_to_12_hours_and_all_workers_renew_at_the_same_time() {
        for minutes in (0..48 * 60).step_by(7) {
            let now = UnixMillis(NOON.0 + minutes * 60_000);
            let bearer = token("https://push.example", now);
            let left = bearer.expires_at.since(now).as_millis() as u64;
            assert!((6 * HOUR..=12 * HOUR).contains(&left), "{left}");
            assert!(bearer.renew_at > now && bearer.renew_at.0.is_multiple_of(6 * HOUR));
            assert_eq!(claims(&bearer)["exp"], bearer.expires_at.0 / 1000);
        }
    }
}
