use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::{Value, json};

use super::*;
use crate::testing::{RANDOM, apns_account};

fn account(changes: &Value) -> Account {
    Account::read(&apns_account(changes), &*RANDOM).unwrap()
}

/// Returns header and claims of a token whose signature is the account's.
fn verified(account: &Account, token: &[u8]) -> (Value, Value) {
    let token = std::str::from_utf8(token).unwrap().strip_prefix("bearer ").unwrap();
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, account.key.public_key().as_ref());
    key.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    let read = |part| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
    (read(header), read(claims))
}

#[test]
fn a_provider_token_names_key_and_team_and_is_signed_with_the_key() {
    let account = account(&json!({}));
    let bearer = account.provider_token(UnixMillis(1_790_000_123_456), &*RANDOM).unwrap();
    let (header, claims) = verified(&account, &bearer.value);
    assert_eq!(header, json!({"alg": "ES256", "kid": "ABC123DEFG"}));
    assert_eq!(claims, json!({"iss": "TEAM123456", "iat": 1_789_999_200}));
}

#[test]
fn workers_whose_clocks_differ_sign_the_same_time_and_replace_a_token_every_half_hour() {
    let account = account(&json!({}));
    let mut times = Vec::new();
    let mut last = None;
    // Every 10 s of three hours.
    for tick in 0..1080 {
        let now = UnixMillis(1_790_000_000_000 + tick * 10_000);
        let bearer = account.provider_token(now, &*RANDOM).unwrap();
        let (_, claims) = verified(&account, &bearer.value);
        let iat = claims["iat"].as_u64().unwrap();
        let age = now.0 / 1000 - iat;
        assert!((DATED_BACK..=DATED_BACK + STEP).contains(&age), "{age}");
        assert!(now < bearer.renew_at && bearer.renew_at < bearer.expires_at);
        assert_eq!(bearer.expires_at.0 / 1000, iat + LIFE);
        if last.replace(iat) != Some(iat) {
            times.push(iat);
        }
    }
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == STEP), "{times:?}");
}

#[test]
fn a_clock_at_the_beginning_of_time_signs_too() {
    let account = account(&json!({}));
    let bearer = account.provider_token(UnixMillis(5), &*RANDOM).unwrap();
    assert_eq!(verified(&account, &bearer.value).1["iat"], 0);
    assert!(account.provider_token(UnixMillis(u64::MAX), &*RANDOM).is_ok());
}

#[test]
fn apps_of_a_team_share_a_token_if_they_have_the_same_key_and_environment() {
    let json: Value = serde_json::from_slice(&apns_account(&json!({}))).unwrap();
    let with = |changes| {
        let mut changed = json.clone();
        changed.as_object_mut().unwrap().extend(Value::as_object(&changes).unwrap().clone());
        Account::read(changed.to_string().as_bytes(), &*RANDOM).unwrap().identity
    };
    let identity = with(json!({}));
    assert_eq!(with(json!({"topic": "com.example.other"})), identity);
    let other: Value = serde_json::from_slice(&apns_account(&json!({}))).unwrap();
    for changes in [
        json!({"sandbox": true}),
        json!({"key_id": "OTHER12345"}),
        json!({"team_id": "OTHER12345"}),
        json!({"key_pem": other["key_pem"]}),
    ] {
        assert_ne!(with(changes), identity);
    }
}

#[test]
fn a_credential_that_cannot_work_names_the_field_and_never_the_key() {
    let p384 = "MIG2AgEAMBAGByqGSM49AgEGBSuBBAAiBIGeMIGbAgEBBDA";
    for (changes, field) in [
        (json!({"key_pem": null}), "key_pem"),
        (json!({"key_pem": "secret"}), "key_pem"),
        (json!({"key_pem": crate::testing::pem(b"secret")}), "key_pem"),
        (
            json!({"key_pem": format!("-----BEGIN PRIVATE KEY-----{p384}-----END PRIVATE KEY-----")}),
            "key_pem",
        ),
        (json!({"key_id": ""}), "key_id"),
        (json!({"key_id": "AuthKey_ABC.p8"}), "key_id"),
        (json!({"team_id": null}), "team_id"),
        (json!({"topic": null}), "topic"),
        (json!({"topic": "com.example\r\nx: y"}), "topic"),
        (json!({"topic": "com example"}), "topic"),
        (json!({"sandbox": "yes"}), "credential"),
    ] {
        let error = Account::read(&apns_account(&changes), &*RANDOM).unwrap_err();
        assert_eq!(error.field, field, "{changes}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    for credential in ["", "[]", "\u{0}", "{\"key_pem\":"] {
        assert!(Account::read(credential.as_bytes(), &*RANDOM).is_err());
    }
}

#[test]
fn an_account_does_not_show_its_key() {
    let text = format!("{:?}", account(&json!({})));
    assert_eq!(text, r#"Account { topic: "com.example.news", sandbox: false, .. }"#);
}
