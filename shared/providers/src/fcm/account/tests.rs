use push_model::app::AppKey;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::{Value, json};

use super::*;
use crate::{
    Authorization, Provider as _,
    exchange::{Destination, Request},
    fcm::Fcm,
    testing::{ACCEPTED_AT, RANDOM, bearer, service_account},
};

fn account(changes: &Value) -> Account {
    Account::read(&service_account(changes)).unwrap()
}

fn exchange(account: &Account) -> Request {
    match Fcm::authorize(account, "", ACCEPTED_AT, &*RANDOM).unwrap() {
        Authorization::Exchange(request) => request,
        Authorization::Made(_) => panic!("FCM exchanges an assertion"),
    }
}

#[test]
fn an_assertion_asks_for_the_scope_of_messages_and_is_signed_with_the_key() {
    let account = account(&json!({}));
    let request = exchange(&account);
    assert_eq!(request.to, Destination::Outside("https://oauth2.googleapis.com".to_owned()));
    assert_eq!(request.path, "/token");
    assert_eq!(request.headers["content-type"], "application/x-www-form-urlencoded");
    let form: Vec<_> = url::form_urlencoded::parse(&request.body).into_owned().collect();
    assert_eq!(
        form[0],
        ("grant_type".to_owned(), "urn:ietf:params:oauth:grant-type:jwt-bearer".to_owned())
    );
    assert_eq!((&*form[1].0, form.len()), ("assertion", 2));

    let (signed, signature) = form[1].1.rsplit_once('.').unwrap();
    let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, account.key.public().as_ref());
    key.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    let read =
        |part| -> Value { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap() };
    assert_eq!(read(header), json!({"alg": "RS256", "typ": "JWT", "kid": "5d1e"}));
    assert_eq!(
        read(claims),
        json!({
            "iss": "push@news-1f3a5.iam.gserviceaccount.com",
            "scope": "https://www.googleapis.com/auth/firebase.messaging",
            "aud": "https://oauth2.googleapis.com/token",
            "iat": 1_789_999_940,
            "exp": 1_790_003_540,
        })
    );
}

#[test]
fn the_token_service_is_the_one_that_the_file_names() {
    for (uri, origin, path) in [
        (json!(null), "https://oauth2.googleapis.com", "/token"),
        (json!("https://sts.example:8443/t?a=b"), "https://sts.example:8443", "/t?a=b"),
        (json!("http://127.0.0.1:9/token"), "http://127.0.0.1:9", "/token"),
    ] {
        let request = exchange(&account(&json!({"token_uri": uri})));
        assert_eq!(request.to, Destination::Outside(origin.to_owned()));
        assert_eq!(request.path, path);
    }
}

#[test]
fn a_message_is_sent_to_the_project_of_the_account() {
    let account = account(&json!({"project_id": "example.com:news"}));
    let request = Fcm::probe(&account, &bearer("Bearer ya29.a"), ACCEPTED_AT).unwrap();
    assert_eq!(request.to, Destination::Fcm);
    assert_eq!(request.path, "/v1/projects/example.com:news/messages:send");
    assert_eq!(request.headers["authorization"], "Bearer ya29.a");
    assert!(request.headers["authorization"].is_sensitive());
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(body["validate_only"], true);
    assert!(Fcm::token(body["message"]["token"].as_str().unwrap()).is_ok());
    assert!(Fcm::probe(&account, &bearer("Bearer a\nb"), ACCEPTED_AT).is_none());
}

#[test]
fn accounts_share_an_access_token_only_if_they_have_the_same_key() {
    let identity = account(&json!({})).identity;
    assert_eq!(account(&json!({"private_key_id": "2", "client_id": "2"})).identity, identity);
    for changes in [
        json!({"project_id": "other-1f3a5"}),
        json!({"client_email": "other@news-1f3a5.iam.gserviceaccount.com"}),
        json!({"token_uri": "https://sts.example/token"}),
    ] {
        assert_ne!(account(&changes).identity, identity);
    }
}

#[test]
fn the_keys_of_a_project_share_its_quota() {
    let app = AppKey::first("news".parse().unwrap());
    let quota_of = |changes: Value| Fcm::quota_of(&account(&changes), &app);
    let other_key = json!({"client_email": "other@news-1f3a5.iam.gserviceaccount.com"});
    assert_eq!(quota_of(other_key), quota_of(json!({})));
    assert_ne!(quota_of(json!({"project_id": "other-1f3a5"})), quota_of(json!({})));
}

#[test]
fn a_file_that_cannot_work_names_the_field_and_never_the_key() {
    let pem = crate::testing::pem(b"secret");
    for (changes, field) in [
        (json!({"type": "authorized_user"}), "type"),
        (json!({"type": null}), "type"),
        (json!({"project_id": null}), "project_id"),
        (json!({"project_id": "../x"}), "project_id"),
        (json!({"project_id": "a\r\nb"}), "project_id"),
        (json!({"client_email": "push"}), "client_email"),
        (json!({"token_uri": "http://oauth2.googleapis.com/token"}), "token_uri"),
        (json!({"token_uri": "https://user:secret@oauth2.googleapis.com/"}), "token_uri"),
        (json!({"token_uri": "http://10.0.0.1/token"}), "token_uri"),
        (json!({"token_uri": "file:///etc/passwd"}), "token_uri"),
        (json!({"private_key": null}), "private_key"),
        (json!({"private_key": "secret"}), "private_key"),
        (json!({"private_key": pem}), "private_key"),
        (json!({"private_key": 5}), "service account"),
    ] {
        let error = Account::read(&service_account(&changes)).unwrap_err();
        assert_eq!(error.field, field, "{changes}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    for credential in ["", "[]", "\u{0}", "{\"type\":"] {
        assert!(Account::read(credential.as_bytes()).is_err());
    }
}

#[test]
fn an_account_does_not_show_its_key() {
    let text = format!("{:?}", account(&json!({})));
    assert_eq!(text, r#"Account { path: "/v1/projects/news-1f3a5/messages:send", .. }"#);
    let request = format!("{:?}", exchange(&account(&json!({}))));
    assert!(!request.contains("assertion"), "{request}");
}
