use serde_json::json;

use super::*;
use crate::testing::answered;

fn judge(status: u16, body: &Value) -> Verdict {
    answered(status, None, body.to_string().as_bytes(), verdict)
}

fn reason(status: u16, reason: &str) -> Verdict {
    judge(status, &json!({"reason": reason}))
}

#[test]
fn a_device_is_gone_by_410_and_its_reason_alone_since_the_time_that_apns_knows() {
    for name in ["Unregistered", "ExpiredToken"] {
        for (timestamp, since) in [
            (json!(1_790_000_000_123_u64), Some(UnixMillis(1_790_000_000_123))),
            (json!(u64::MAX), Some(UnixMillis::MAX)),
            (json!("soon"), None),
            (json!(-1), None),
            (json!(null), None),
        ] {
            let body = json!({"reason": name, "timestamp": timestamp});
            assert_eq!(judge(410, &body), Verdict::Gone { since, code: name });
        }
        for status in (100..600).filter(|status| *status != 410) {
            assert!(!matches!(reason(status, name), Verdict::Gone { .. }), "{status}");
        }
    }
    for reason in ["", "Gone", "unregistered", "BadDeviceToken"] {
        let verdict = judge(410, &json!({"reason": reason, "timestamp": 1}));
        assert!(matches!(verdict, Verdict::DeviceRefused { suspicious: true, .. }), "{reason}");
    }
}

#[test]
fn every_documented_reason_has_its_verdict() {
    let stop = |code| Verdict::Account(AccountFault::Stop { code });
    let refused = |code| Verdict::DeviceRefused { code, suspicious: true };
    let message = |code| Verdict::MessageRefused { code };
    let later = Verdict::Unavailable { wait: None };
    let rows = [
        (400, "BadCollapseId", message("BadCollapseId")),
        (400, "BadDeviceToken", refused("BadDeviceToken")),
        (400, "BadExpirationDate", message("BadExpirationDate")),
        (400, "BadMessageId", message("BadMessageId")),
        (400, "BadPriority", message("BadPriority")),
        (400, "BadTopic", stop("BadTopic")),
        (400, "DeviceTokenNotForTopic", refused("DeviceTokenNotForTopic")),
        (400, "DuplicateHeaders", message("DuplicateHeaders")),
        (400, "IdleTimeout", Verdict::Reconnect),
        (400, "InvalidPushType", message("InvalidPushType")),
        (400, "MissingDeviceToken", refused("MissingDeviceToken")),
        (400, "MissingTopic", stop("MissingTopic")),
        (400, "PayloadEmpty", message("PayloadEmpty")),
        (400, "TopicDisallowed", stop("TopicDisallowed")),
        (403, "BadCertificate", stop("BadCertificate")),
        (403, "BadCertificateEnvironment", stop("BadCertificateEnvironment")),
        (403, "BadEnvironmentKeyIdInToken", stop("BadEnvironmentKeyIdInToken")),
        (403, "BadEnvironmentKeyInToken", stop("BadEnvironmentKeyInToken")),
        (
            403,
            "ExpiredProviderToken",
            Verdict::Account(AccountFault::Renew { code: "ExpiredProviderToken" }),
        ),
        (403, "Forbidden", stop("Forbidden")),
        (403, "InvalidProviderToken", stop("InvalidProviderToken")),
        (403, "MissingProviderToken", stop("MissingProviderToken")),
        (403, "UnrelatedKeyIdInToken", stop("UnrelatedKeyIdInToken")),
        (404, "BadPath", refused("BadPath")),
        (405, "MethodNotAllowed", stop("MethodNotAllowed")),
        (410, "ExpiredToken", Verdict::Gone { since: None, code: "ExpiredToken" }),
        (410, "Unregistered", Verdict::Gone { since: None, code: "Unregistered" }),
        (413, "PayloadTooLarge", message("PayloadTooLarge")),
        (429, "TooManyProviderTokenUpdates", Verdict::Reconnect),
        (429, "TooManyRequests", Verdict::Throttled { whom: Whom::Device, wait: None }),
        (500, "InternalServerError", later),
        (503, "ServiceUnavailable", later),
        (503, "Shutdown", later),
    ];
    for (status, name, verdict) in rows {
        assert_eq!(reason(status, name), verdict, "{status} {name}");
    }
    for documented in Reason::DOCUMENTED {
        assert!(rows.iter().any(|(_, name, _)| *name == documented.name()), "{documented:?}");
    }
}

#[test]
fn a_reason_that_is_not_documented_is_judged_by_its_status() {
    let code = "unknown_reason";
    for (status, verdict) in [
        (200, Verdict::Sent),
        (400, Verdict::MessageRefused { code }),
        (401, Verdict::Account(AccountFault::Suspect { code })),
        (403, Verdict::Account(AccountFault::Stop { code })),
        (404, Verdict::DeviceRefused { code, suspicious: true }),
        (413, Verdict::MessageRefused { code }),
        (429, Verdict::Throttled { whom: Whom::Account, wait: None }),
        (500, Verdict::Unavailable { wait: None }),
        (302, Verdict::Unavailable { wait: None }),
    ] {
        assert_eq!(reason(status, "SomethingNew"), verdict, "{status}");
    }
}

#[test]
fn a_body_that_cannot_be_read_neither_stops_an_account_nor_removes_a_device() {
    let deep = "[".repeat(100_000).into_bytes();
    let cut = br#"{"reason":"Unregistered","timestamp":17"#.as_slice();
    for body in [b"".as_slice(), b"<html>Unregistered</html>", cut, b"\xff", b"[]", &deep] {
        for status in 201..600 {
            let verdict = answered(status, None, body, verdict);
            let is_harmless = match verdict {
                Verdict::Gone { .. } | Verdict::Account(AccountFault::Stop { .. }) => false,
                Verdict::MessageRefused { .. } => status == 413,
                _ => true,
            };
            assert!(is_harmless, "{status} {verdict:?}");
        }
    }
}

#[test]
fn apns_says_how_long_to_wait() {
    let wait = Some(std::time::Duration::from_secs(5));
    let body = br#"{"reason":"TooManyRequests"}"#;
    let held = Verdict::Throttled { whom: Whom::Device, wait };
    assert_eq!(answered(429, Some(5), body, verdict), held);
    assert_eq!(answered(503, Some(5), b"", verdict), Verdict::Unavailable { wait });
}

#[test]
fn an_answer_about_the_token_of_a_probe_shows_that_the_account_works_and_no_other_error_does() {
    let probe = |status, name: &str| {
        answered(status, None, json!({"reason": name}).to_string().as_bytes(), probed)
    };
    for (status, name) in
        [(400, "BadDeviceToken"), (400, "DeviceTokenNotForTopic"), (410, "Unregistered")]
    {
        assert_eq!(probe(status, name), Ok(()), "{name}");
    }
    for reason in Reason::DOCUMENTED {
        let is_of_device = matches!(
            reason,
            Reason::BadDeviceToken
                | Reason::DeviceTokenNotForTopic
                | Reason::Unregistered
                | Reason::ExpiredToken
        );
        assert!(is_of_device || probe(403, reason.name()).is_err(), "{reason:?}");
    }
    assert!(probe(400, "").is_err() && probe(404, "").is_err());
}
