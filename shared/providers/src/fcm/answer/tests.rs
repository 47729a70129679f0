use serde_json::json;

use super::*;
use crate::testing::{ACCEPTED_AT, answered};

const NO_WAIT: Verdict = Verdict::Unavailable { wait: None };

fn judge(status: u16, body: &Value) -> Verdict {
    answered(status, None, body.to_string().as_bytes(), verdict)
}

/// Writes the body of an error with these details.
fn error(details: &Value) -> Value {
    json!({"error": {"code": 1, "message": "a text for people", "status": "S", "details": details}})
}

fn fcm(code: &str) -> Value {
    json!({"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code})
}

fn violations(fields: &[&str]) -> Value {
    let fields: Vec<_> =
        fields.iter().map(|field| json!({"field": field, "description": "d"})).collect();
    json!({"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": fields})
}

fn quota(subjects: &[&str]) -> Value {
    let subjects: Vec<_> =
        subjects.iter().map(|subject| json!({"subject": subject, "description": "d"})).collect();
    json!({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": subjects})
}

fn info(reason: &str) -> Value {
    json!({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason,
        "domain": "googleapis.com", "metadata": {"service": "fcm.googleapis.com"}})
}

fn refused(code: &'static str, suspicious: bool) -> Verdict {
    Verdict::DeviceRefused { code, suspicious }
}

fn renew(code: &'static str) -> Verdict {
    Verdict::Account(AccountFault::Renew { code })
}

#[test]
fn a_device_is_gone_by_404_and_unregistered_alone() {
    let unregistered = error(&json!([fcm("UNREGISTERED")]));
    assert_eq!(judge(404, &unregistered), Verdict::Gone { since: None, code: "UNREGISTERED" });
    let suspect = Verdict::Account(AccountFault::Suspect { code: "NOT_FOUND" });
    for body in
        [json!({}), error(&json!([])), error(&json!([fcm("NOT_FOUND")])), json!("UNREGISTERED")]
    {
        assert_eq!(judge(404, &body), suspect, "{body}");
    }
    for status in (100..600).filter(|status| *status != 404) {
        assert!(!matches!(judge(status, &unregistered), Verdict::Gone { .. }), "{status}");
    }
}

#[test]
fn a_field_of_the_message_refuses_the_message_and_the_address_only_its_device() {
    let message = Verdict::MessageRefused { code: "INVALID_ARGUMENT" };
    let device = refused("INVALID_ARGUMENT", false);
    let argument = fcm("INVALID_ARGUMENT");
    for (details, verdict) in [
        (json!([violations(&["message.data[0].value"])]), message),
        (json!([argument, violations(&["message.android.ttl"])]), message),
        (json!([violations(&["message.token", "message.data"])]), message),
        (json!([argument, violations(&["message.token"])]), device),
        (json!([violations(&["message.token"]), argument]), device),
        (json!([violations(&["message.fid"])]), device),
        (json!([argument]), device),
        (json!([argument, violations(&[])]), device),
        (json!([fcm("UNSPECIFIED_ERROR")]), NO_WAIT),
        (json!([fcm("SOMETHING_NEW")]), refused("unknown_400", true)),
        (json!([]), refused("unknown_400", true)),
        (json!([violations(&[]), {"@type": 5}, 7, null]), refused("unknown_400", true)),
    ] {
        assert_eq!(judge(400, &error(&details)), verdict, "{details}");
    }
}

#[test]
fn an_account_is_renewed_on_401_and_403_unless_the_code_is_about_the_device() {
    for (status, details, verdict) in [
        (403, json!([fcm("SENDER_ID_MISMATCH")]), refused("SENDER_ID_MISMATCH", true)),
        (401, json!([fcm("THIRD_PARTY_AUTH_ERROR")]), refused("THIRD_PARTY_AUTH_ERROR", true)),
        (401, json!([]), renew("UNAUTHENTICATED")),
        (403, json!([]), renew("PERMISSION_DENIED")),
        (401, json!([info("ACCESS_TOKEN_EXPIRED")]), renew("ACCESS_TOKEN_EXPIRED")),
        (403, json!([info("SERVICE_DISABLED")]), renew("SERVICE_DISABLED")),
        (403, json!([info("\u{1b}[31m a text")]), renew("PERMISSION_DENIED")),
        (403, json!([fcm("UNREGISTERED")]), renew("PERMISSION_DENIED")),
    ] {
        assert_eq!(judge(status, &error(&details)), verdict, "{status} {details}");
    }
}

#[test]
fn a_quota_of_the_device_holds_the_device_and_every_other_one_the_account() {
    for (details, whom) in [
        (json!([]), Whom::Account),
        (json!([fcm("QUOTA_EXCEEDED")]), Whom::Account),
        (json!([info("RATE_LIMIT_EXCEEDED")]), Whom::Account),
        (json!([fcm("QUOTA_EXCEEDED"), quota(&["project:news-1f3a5"])]), Whom::Account),
        (json!([fcm("QUOTA_EXCEEDED"), quota(&["device:abc"])]), Whom::Device),
        (json!([quota(&["token:abc", "device"])]), Whom::Device),
        (json!([quota(&["device:abc", "project:1"])]), Whom::Account),
        (json!([quota(&[])]), Whom::Account),
    ] {
        let body = error(&details).to_string();
        for (retry_after, wait) in [(None, 60), (Some(7), 7), (Some(9_999_999), 3600)] {
            let wait = Some(Duration::from_secs(wait));
            let verdict = answered(429, retry_after, body.as_bytes(), verdict);
            assert_eq!(verdict, Verdict::Throttled { whom, wait }, "{details}");
        }
    }
}

#[test]
fn a_failure_of_fcm_is_tried_again_when_it_says() {
    for status in [408, 500, 502, 503, 504, 301] {
        for details in [json!([]), json!([fcm("INTERNAL")]), json!([fcm("UNAVAILABLE")])] {
            let body = error(&details).to_string();
            assert_eq!(answered(status, None, body.as_bytes(), verdict), NO_WAIT, "{status}");
            let wait = Some(Duration::from_secs(30));
            let later = answered(status, Some(30), body.as_bytes(), verdict);
            assert_eq!(later, Verdict::Unavailable { wait });
        }
    }
}

#[test]
fn a_body_that_cannot_be_read_is_judged_by_the_status() {
    let html = b"<html><body>UNREGISTERED</body></html>".as_slice();
    let cut = br#"{"error":{"details":[{"@type":"x.FcmError","errorCode":"UNREGIST"#.as_slice();
    let deep = "[".repeat(100_000).into_bytes();
    for body in [b"".as_slice(), html, cut, b"\xff\xfe", &deep] {
        for (status, expected) in [
            (200, Verdict::Sent),
            (400, refused("unknown_400", true)),
            (401, renew("UNAUTHENTICATED")),
            (403, renew("PERMISSION_DENIED")),
            (404, Verdict::Account(AccountFault::Suspect { code: "NOT_FOUND" })),
            (413, Verdict::MessageRefused { code: "413" }),
            (418, refused("unknown_4xx", true)),
            (500, NO_WAIT),
            (599, NO_WAIT),
        ] {
            assert_eq!(answered(status, None, body, verdict), expected, "{status}");
        }
    }
}

#[test]
fn an_access_token_is_renewed_five_minutes_before_its_end_by_our_own_clock() {
    for (expires_in, renew_in, end_in) in [
        (json!(3600), 3300, 3600),
        (json!(3599), 3299, 3599),
        (json!(null), 3300, 3600),
        (json!("3600"), 3300, 3600),
        (json!(-5), 3300, 3600),
        (json!(100), 50, 100),
        (json!(0), 30, 60),
        (json!(u64::MAX), 86_100, 86_400),
    ] {
        let body =
            json!({"access_token": "ya29.a", "expires_in": expires_in, "token_type": "Bearer"});
        let bearer =
            answered(200, None, body.to_string().as_bytes(), |answer| bearer(answer, ACCEPTED_AT))
                .unwrap();
        assert_eq!(bearer.value, "Bearer ya29.a");
        assert_eq!(bearer.renew_at, ACCEPTED_AT.plus_seconds(renew_in), "{expires_in}");
        assert_eq!(bearer.expires_at, ACCEPTED_AT.plus_seconds(end_in), "{expires_in}");
    }
}

#[test]
fn a_refused_exchange_stops_the_account_and_a_failed_one_is_tried_again() {
    let stop = |code| AccountFault::Stop { code };
    let later = AccountFault::Unavailable { wait: None };
    for (status, body, fault) in [
        (400, r#"{"error":"invalid_grant","error_description":"x"}"#, stop("invalid_grant")),
        (401, r#"{"error":"invalid_client"}"#, stop("invalid_client")),
        (403, r#"{"error":{"code":403}}"#, stop("token_refused")),
        (400, r#"{"error":"something new"}"#, stop("token_refused")),
        (404, "<html>", stop("token_refused")),
        (302, "", stop("token_uri_redirects")),
        (400, r#"{"error":"internal_failure"}"#, later),
        (429, r#"{"error":"rate_limit_exceeded"}"#, later),
        (503, "", later),
        (200, "", later),
        (200, "<html>", later),
        (200, r#"{"access_token":""}"#, later),
        (200, r#"{"access_token":"a\nb"}"#, later),
        (200, r#"{"access_token":7}"#, later),
        (200, &format!(r#"{{"access_token":"{}"}}"#, "a".repeat(9000)), later),
    ] {
        let judged = answered(status, None, body.as_bytes(), |answer| bearer(answer, ACCEPTED_AT));
        assert_eq!(judged.unwrap_err(), fault, "{status} {body}");
    }
}

#[test]
fn an_answer_about_the_token_of_a_probe_shows_that_the_account_works_and_no_other_error_does() {
    let probe =
        |status, body: &Value| answered(status, None, body.to_string().as_bytes(), super::probed);
    for code in ["INVALID_ARGUMENT", "UNREGISTERED", "SENDER_ID_MISMATCH"] {
        let status = match code {
            "INVALID_ARGUMENT" => 400,
            "UNREGISTERED" => 404,
            _ => 403,
        };
        assert_eq!(probe(status, &error(&json!([fcm(code)]))), Ok(()), "{code}");
    }
    assert_eq!(probe(200, &json!({})), Ok(()));
    for status in [302, 400, 401, 403, 404, 405, 418, 429, 500, 503] {
        assert!(probe(status, &json!({})).is_err(), "{status}");
    }
}
