use std::time::Duration;

use proptest::prelude::*;
use push_model::{app::AppKey, ids::ClientId, registration::RegistrationEpoch};

use super::*;
use crate::{
    encoding::{base64url, from_base64url},
    key::Key,
    key_set::{KeySet, Rotation},
};

const NOW: UnixMillis = UnixMillis(1_700_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);
const EPOCH: RegistrationEpoch = RegistrationEpoch(7);

/// A key that is used nowhere else: PKCS #8 in base64url.
const GOLDEN_KEY: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgoCkye_JxD4FO7CqbTDdniBWdNy-ikE3OsGZ6xyx9Nb\
    ihRANCAAR4fQlxPlSe6yfUOr6my-REax8audMCP1Xl-y_R163LZVuVB4YiwWkr7GsMxmRuutgzOAnR8CLeQRqSQ0sO\
    C8oP";
/// Header and claims of the token for device `phone:1` of app `news`, generation 2, at [`NOW`].
const GOLDEN_TOKEN: &str = "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6IkplZHdzZHJEWk85aUFIckYifQ.eyJpYXQiOjE2OTk5OTk\
    5OTUsImV4cCI6MTcwMDA4NjQwMCwic3ViIjoibmV3czpwaG9uZToxIiwiY2xpZW50aWQiOiJuZXdzOnBob25lOjEiL\
    CJ1c2VybmFtZSI6Im5ld3M6cGhvbmU6MSIsImdlbmVyYXRpb24iOjIsInJlZ2lzdHJhdGlvbiI6IjAwMDAwMDAwMDA\
    wMDAwMDciLCJhY2wiOlt7InBlcm1pc3Npb24iOiJhbGxvdyIsImFjdGlvbiI6InN1YnNjcmliZSIsInRvcGljIjoiZ\
    XEgcHVzaC9uZXdzL3Bob25lOjEifSx7InBlcm1pc3Npb24iOiJkZW55IiwiYWN0aW9uIjoiYWxsIiwidG9waWMiOiI\
    kU1lTLyMifSx7InBlcm1pc3Npb24iOiJkZW55IiwiYWN0aW9uIjoiYWxsIiwidG9waWMiOiIjIn1dfQ.oQ2BK2sJ7h\
    wYx6DInR8p3daI982GmAlCp2QOqvRB5Vv5q_rCgqQPfYS3hkJWw5HiQ11tN-thPEZRimKajxTZQg";

fn app(generation: u64) -> AppKey {
    AppKey { id: "news".parse().unwrap(), generation }
}

fn client() -> ClientId {
    "phone:1".parse().unwrap()
}

fn golden_keys() -> KeySet {
    let pkcs8 = from_base64url(GOLDEN_KEY.as_bytes()).unwrap();
    KeySet::new(vec![Key::from_pkcs8(pkcs8, NOW, NOW, None).unwrap()]).unwrap()
}

fn token(keys: &KeySet) -> String {
    keys.issue(&app(0), &client(), EPOCH, NOW, DAY).unwrap().text
}

/// Signs any header and claims, as only the owner of the key can.
fn signed(key: &Key, header: &str, claims: &str) -> String {
    let text = format!("{}.{}", base64url(header.as_bytes()), base64url(claims.as_bytes()));
    let signature = key.sign(text.as_bytes()).unwrap();
    format!("{text}.{}", base64url(signature.as_ref()))
}

fn header(keys: &KeySet) -> String {
    format!(r#"{{"alg":"ES256","typ":"JWT","kid":"{}"}}"#, keys.keys()[0].kid())
}

const CLAIMS: &str =
    r#"{"exp":1700000001,"sub":"a:d","clientid":"a:d","username":"a:d","registration":"7"}"#;

#[test]
fn a_token_says_what_brokers_read() {
    let token = golden_keys().issue(&app(2), &client(), EPOCH, NOW, DAY).unwrap();
    let (signed, _) = token.text.rsplit_once('.').unwrap();
    assert_eq!(signed, GOLDEN_TOKEN.rsplit_once('.').unwrap().0);
    let claims = signed.split_once('.').unwrap().1;
    let claims = String::from_utf8(from_base64url(claims.as_bytes()).unwrap()).unwrap();
    let expected = concat!(
        r#"{"iat":1699999995,"exp":1700086400,"sub":"news:phone:1","clientid":"news:phone:1","#,
        r#""username":"news:phone:1","generation":2,"registration":"0000000000000007","acl":["#,
        r#"{"permission":"allow","action":"subscribe","topic":"eq push/news/phone:1"},"#,
        r##"{"permission":"deny","action":"all","topic":"$SYS/#"},"##,
        r##"{"permission":"deny","action":"all","topic":"#"}]}"##,
    );
    assert_eq!(claims, expected);
}

#[test]
fn a_token_that_was_issued_earlier_is_still_read() {
    let identity = golden_keys().verify(GOLDEN_TOKEN.as_bytes(), Purpose::MqttLogin, NOW).unwrap();
    assert_eq!((identity.app_key(), &identity.client), (app(2), &client()));
    assert_eq!(identity.expires_at, NOW.plus(DAY));
}

#[test]
fn a_token_ends_at_its_time_and_not_later_than_its_key() {
    let mut keys = KeySet::generate(NOW).unwrap();
    let token = keys.issue(&app(0), &client(), EPOCH, NOW, DAY).unwrap();
    assert_eq!(token.expires_at, NOW.plus(DAY));
    let last = UnixMillis(token.expires_at.0 - 1);
    assert!(keys.verify(token.text.as_bytes(), Purpose::MqttLogin, last).is_ok());
    assert_eq!(
        keys.verify(token.text.as_bytes(), Purpose::MqttLogin, token.expires_at),
        Err(TokenError::Expired(token.expires_at))
    );
    keys.rotate(Rotation { lead: DAY / 2, overlap: DAY / 4 }, NOW).unwrap();
    let shorter = keys.issue(&app(0), &client(), EPOCH, NOW, DAY).unwrap();
    assert_eq!(shorter.expires_at, NOW.plus(DAY / 2 + DAY / 4));
    assert!(
        keys.verify(
            token.text.as_bytes(),
            Purpose::MqttLogin,
            UnixMillis(shorter.expires_at.0 - 1)
        )
        .is_ok()
    );
    let after = keys.verify(token.text.as_bytes(), Purpose::MqttLogin, shorter.expires_at);
    assert_eq!(after, Err(TokenError::UnknownKey), "the key that signed it has ended");
}

#[test]
fn a_token_is_good_for_the_device_that_it_names_only() {
    let keys = KeySet::generate(NOW).unwrap();
    let token = token(&keys);
    let login = |id: &str, user: &str| keys.authenticate(id, user, token.as_bytes(), NOW);
    assert!(login("news:phone:1", "news:phone:1").is_ok());
    for (id, user) in [
        ("news:phone:2", "news:phone:1"),
        ("news:phone:1", "news:phone:2"),
        ("news:phone:1", ""),
        ("other:phone:1", "other:phone:1"),
        ("news/phone:1", "news/phone:1"),
    ] {
        assert_eq!(login(id, user), Err(TokenError::OtherDevice), "{id} {user}");
    }
}

#[test]
fn only_a_token_of_a_known_key_with_the_one_algorithm_is_accepted() {
    let (keys, others) = (KeySet::generate(NOW).unwrap(), KeySet::generate(NOW).unwrap());
    let key = &keys.keys()[0];
    assert!(
        keys.verify(signed(key, &header(&keys), CLAIMS).as_bytes(), Purpose::MqttLogin, NOW)
            .is_ok()
    );
    let kid = key.kid();
    let refused = [
        (r#"{"alg":"none","typ":"JWT","kid":"K"}"#, TokenError::Algorithm),
        (r#"{"alg":"HS256","typ":"JWT","kid":"K"}"#, TokenError::Algorithm),
        (r#"{"alg":"es256","typ":"JWT","kid":"K"}"#, TokenError::Algorithm),
        (r#"{"alg":"ES256","typ":"JWE","kid":"K"}"#, TokenError::Algorithm),
        (r#"{"alg":"ES256","typ":"JWT","kid":"K","crit":["x"],"x":1}"#, TokenError::Critical),
        (r#"{"alg":"ES256","typ":"JWT","kid":"K","crit":null}"#, TokenError::Critical),
        (r#"{"alg":"ES256","typ":"JWT","kid":"unknown"}"#, TokenError::UnknownKey),
        (r#"{"alg":"ES256","typ":"JWT"}"#, TokenError::UnknownKey),
        (r#"{"alg":"none","alg":"ES256","kid":"K"}"#, TokenError::Malformed),
        (r#"{"kid":"K"}"#, TokenError::Malformed),
        (r#"["ES256"]"#, TokenError::Malformed),
        ("", TokenError::Malformed),
    ];
    for (header, error) in refused {
        let token = signed(key, &header.replace('K', kid), CLAIMS);
        assert_eq!(keys.verify(token.as_bytes(), Purpose::MqttLogin, NOW), Err(error), "{header}");
    }
    let forged = signed(&others.keys()[0], &header(&keys), CLAIMS);
    assert_eq!(keys.verify(forged.as_bytes(), Purpose::MqttLogin, NOW), Err(TokenError::Signature));
    assert_eq!(
        others.verify(token(&keys).as_bytes(), Purpose::MqttLogin, NOW),
        Err(TokenError::UnknownKey)
    );
}

#[test]
fn a_token_is_good_for_its_purpose_only() {
    let keys = golden_keys();
    let login = token(&keys);
    let record = keys.issue_for_record(&app(2), &client(), EPOCH, NOW, DAY).unwrap().text;
    let verify = |token: &str, purpose| keys.verify(token.as_bytes(), purpose, NOW);
    let identity = verify(&record, Purpose::DeviceRecord).unwrap();
    assert_eq!((identity.app_key(), &identity.client), (app(2), &client()));
    assert_eq!((identity.registration, identity.expires_at), (EPOCH, NOW.plus(DAY)));
    assert_eq!(verify(&login, Purpose::DeviceRecord), Err(TokenError::Algorithm));
    assert_eq!(verify(&record, Purpose::MqttLogin), Err(TokenError::Algorithm));
    // Nor does another header help: the bytes that are signed differ too.
    let other_header = |token: &str, header: &str| {
        let (_, rest) = token.split_once('.').unwrap();
        format!("{}.{rest}", base64url(header.as_bytes()))
    };
    let as_login = other_header(&record, &header(&keys));
    assert_eq!(verify(&as_login, Purpose::MqttLogin), Err(TokenError::Signature));
    let key = &keys.keys()[0];
    let header = header(&keys).replace("JWT", "device-record");
    let plain = signed(key, &header, CLAIMS);
    assert_eq!(verify(&plain, Purpose::DeviceRecord), Err(TokenError::Signature));
    let (text, signature) = record.rsplit_once('.').unwrap();
    let signature = from_base64url(signature.as_bytes()).unwrap();
    assert!(!key.verify(text.as_bytes(), &signature), "no JSON Web Token for any reader");
}

#[test]
fn a_token_whose_parts_were_changed_is_refused() {
    let keys = KeySet::generate(NOW).unwrap();
    let token = token(&keys);
    let parts: Vec<_> = token.split('.').collect();
    let (header, claims, signature) = (parts[0], parts[1], parts[2]);
    let other_claims = base64url(CLAIMS.as_bytes());
    let changed = [
        (format!("{header}.{claims}."), TokenError::Signature),
        (format!("{header}.{other_claims}.{signature}"), TokenError::Signature),
        (format!("{header}.{claims}.{}", base64url(&[0; 64])), TokenError::Signature),
        (format!("{header}.{claims}.{}", &signature[..84]), TokenError::Signature),
        (format!("{header}.{claims}"), TokenError::Malformed),
        (format!("{header}.{claims}.{signature}."), TokenError::Malformed),
        (format!("{header}.{claims}.{signature}="), TokenError::Malformed),
        (format!(" {token}"), TokenError::Malformed),
        (format!("{token}\n"), TokenError::Malformed),
        ("..".to_owned(), TokenError::Malformed),
        (".".to_owned(), TokenError::Malformed),
        (String::new(), TokenError::Missing),
        ("x".repeat(MAX_LEN), TokenError::Malformed),
        ("x".repeat(MAX_LEN + 1), TokenError::TooLong),
    ];
    for (changed, error) in changed {
        assert_eq!(
            keys.verify(changed.as_bytes(), Purpose::MqttLogin, NOW),
            Err(error),
            "{changed}"
        );
    }
}

#[test]
fn signed_claims_that_name_no_device_are_refused() {
    let keys = KeySet::generate(NOW).unwrap();
    let bad = [
        CLAIMS.replacen("a:d", "a:e", 1),
        CLAIMS.replace("a:d", "a"),
        CLAIMS.replace("a:d", "a:#"),
        CLAIMS.replace("1700000001", "\"never\""),
        CLAIMS.replace("\"exp\":1700000001,", ""),
        "{}".to_owned(),
        String::new(),
    ];
    for claims in bad {
        let token = signed(&keys.keys()[0], &header(&keys), &claims);
        assert_eq!(
            keys.verify(token.as_bytes(), Purpose::MqttLogin, NOW),
            Err(TokenError::Claims),
            "{claims}"
        );
    }
}

#[test]
fn a_signed_token_that_lasts_longer_than_any_that_is_issued_is_refused() {
    let mut keys = KeySet::generate(NOW).unwrap();
    let ends = |keys: &KeySet, exp: u64| {
        let claims = CLAIMS.replace("1700000001", &exp.to_string());
        let token = signed(&keys.keys()[0], &header(keys), &claims);
        keys.verify(token.as_bytes(), Purpose::MqttLogin, NOW).map(|identity| identity.expires_at)
    };
    let latest = NOW.plus(MAX_TTL + CLOCK_ALLOWANCE);
    assert_eq!(ends(&keys, latest.0 / 1000), Ok(latest));
    for exp in [latest.0 / 1000 + 1, u64::MAX] {
        assert_eq!(ends(&keys, exp), Err(TokenError::Claims), "{exp}");
    }
    assert_eq!(
        keys.issue(&app(0), &client(), EPOCH, NOW, DAY * 9999).unwrap().expires_at,
        NOW.plus(MAX_TTL)
    );
    keys.rotate(Rotation { lead: DAY, overlap: DAY }, NOW).unwrap();
    assert_eq!(ends(&keys, latest.0 / 1000), Ok(NOW.plus(2 * DAY)), "nor longer than its key");
}

#[test]
fn what_a_token_proved_names_the_key_that_must_still_be_in_force() {
    let mut keys = KeySet::generate(NOW).unwrap();
    let kid = keys.verify(token(&keys).as_bytes(), Purpose::MqttLogin, NOW).unwrap().kid;
    assert!(keys.verifying(&kid, NOW).is_some());
    keys.rotate(Rotation { lead: Duration::ZERO, overlap: Duration::ZERO }, NOW).unwrap();
    assert!(keys.verifying(&kid, NOW).is_none());
}

#[test]
fn the_longest_ids_fit_into_a_token() {
    let keys = KeySet::generate(NOW).unwrap();
    let app = AppKey { id: "a".repeat(64).parse().unwrap(), generation: u64::MAX };
    let client: ClientId = "c".repeat(128).parse().unwrap();
    let token = keys.issue(&app, &client, EPOCH, NOW, Duration::MAX).unwrap();
    assert!(token.text.len() <= MAX_LEN, "{}", token.text.len());
    assert_eq!(keys.verify(token.text.as_bytes(), Purpose::MqttLogin, NOW).unwrap().client, client);
}

#[test]
fn a_token_does_not_print() {
    let token = KeySet::generate(NOW).unwrap().issue(&app(0), &client(), EPOCH, NOW, DAY).unwrap();
    assert!(!format!("{token:?}").contains(&token.text[..20]));
}

proptest! {
    #[test]
    fn no_text_is_accepted_and_none_panics(text in ".{0,200}", bytes: Vec<u8>) {
        let keys = golden_keys();
        prop_assert!(keys.verify(text.as_bytes(), Purpose::MqttLogin, NOW).is_err());
        prop_assert!(keys.verify(&bytes, Purpose::MqttLogin, NOW).is_err());
    }

    #[test]
    fn no_token_with_one_byte_changed_is_accepted(at in 0..GOLDEN_TOKEN.len(), byte: u8) {
        let mut token = GOLDEN_TOKEN.as_bytes().to_vec();
        prop_assume!(token[at] != byte);
        token[at] = byte;
        prop_assert!(golden_keys().verify(&token, Purpose::MqttLogin, NOW).is_err());
    }

    #[test]
    fn signed_parts_of_any_content_do_not_panic(header in "\\PC{0,80}", claims in "\\PC{0,80}") {
        let keys = golden_keys();
        let token = signed(&keys.keys()[0], &header, &claims);
        prop_assert!(keys.verify(token.as_bytes(), Purpose::MqttLogin, NOW).is_err());
    }
}
