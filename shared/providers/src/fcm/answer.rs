//! The answers of FCM and of the service of its access tokens.
//!
//! The status decides first, then the codes in the body (`google.rpc.Status`). A body that cannot be read has
//! no codes. Texts for people are never read.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use push_model::time::UnixMillis;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    Bearer,
    exchange::Answer,
    verdict::{AccountFault, Verdict, Whom},
};

/// The wait after a 429 that names none.
const QUOTA_WAIT: Duration = Duration::from_secs(60);
/// The life in seconds of an access token whose service states none: that of Google's.
const USUAL_LIFE: u64 = 3600;
/// The shortest life in seconds that is believed, so that a service cannot ask for a storm of requests.
const SHORTEST_LIFE: u64 = 60;
/// The longest life in seconds that is believed.
const LONGEST_LIFE: u64 = 24 * 60 * 60;
/// The seconds before its end at which an access token is renewed, or half of its life if that is less.
const RENEWED_BEFORE: u64 = 300;
/// The longest access token.
const MAX_ACCESS_TOKEN_LEN: usize = 8192;

/// The `errorCode` of `google.firebase.fcm.v1.FcmError`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FcmCode {
    Unspecified,
    InvalidArgument,
    Unregistered,
    SenderIdMismatch,
    QuotaExceeded,
    Unavailable,
    Internal,
    ThirdPartyAuthError,
    /// A code that is not documented.
    Other,
}

/// The known parts of a body.
#[derive(Debug, Default)]
struct Codes {
    fcm: Option<FcmCode>,
    /// `google.rpc.BadRequest`: true for each violation that is about the address of the device.
    violations: Vec<bool>,
    /// `google.rpc.QuotaFailure`: true for each violation whose quota is the device's.
    quotas: Vec<bool>,
    /// `google.rpc.ErrorInfo`: the reason for which Google's front end refused the account.
    reason: Option<&'static str>,
}

/// Reads the answer to a message.
pub(super) fn verdict(answer: &Answer<'_>) -> Verdict {
    let status = answer.status;
    if status.is_success() {
        return Verdict::Sent;
    }
    let codes = Codes::read(answer.body);
    let wait = answer.retry_after();
    match status {
        StatusCode::BAD_REQUEST => codes.bad_request(),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => codes.forbidden(status),
        StatusCode::NOT_FOUND => codes.not_found(),
        StatusCode::TOO_MANY_REQUESTS => {
            let of_device = !codes.quotas.is_empty() && codes.quotas.iter().all(|device| *device);
            let whom = if of_device { Whom::Device } else { Whom::Account };
            Verdict::Throttled { whom, wait: Some(wait.unwrap_or(QUOTA_WAIT)) }
        }
        StatusCode::PAYLOAD_TOO_LARGE => Verdict::MessageRefused { code: "413" },
        StatusCode::REQUEST_TIMEOUT => Verdict::Unavailable { wait },
        _ if status.is_client_error() => {
            Verdict::DeviceRefused { code: "unknown_4xx", suspicious: true }
        }
        _ => Verdict::Unavailable { wait },
    }
}

/// Reads the answer to the request for a token that no device has. FCM looks at the token only after it has
/// accepted the account.
pub(super) fn probed(answer: &Answer<'_>) -> Result<(), Verdict> {
    match verdict(answer) {
        Verdict::Sent
        | Verdict::Gone { .. }
        | Verdict::MessageRefused { code: "INVALID_ARGUMENT" }
        | Verdict::DeviceRefused { code: "INVALID_ARGUMENT" | "SENDER_ID_MISMATCH", .. } => Ok(()),
        other => Err(other),
    }
}

impl Codes {
    fn bad_request(&self) -> Verdict {
        // FCM lists `message.token` among the violations of a token that is none. Only other fields are those
        // of every device.
        if self.violations.iter().any(|of_device| !of_device) {
            return Verdict::MessageRefused { code: "INVALID_ARGUMENT" };
        }
        match self.fcm {
            _ if !self.violations.is_empty() => {
                Verdict::DeviceRefused { code: "INVALID_ARGUMENT", suspicious: false }
            }
            Some(FcmCode::InvalidArgument) => {
                Verdict::DeviceRefused { code: "INVALID_ARGUMENT", suspicious: false }
            }
            Some(FcmCode::Unspecified) => Verdict::Unavailable { wait: None },
            Some(
                FcmCode::Unregistered
                | FcmCode::SenderIdMismatch
                | FcmCode::QuotaExceeded
                | FcmCode::Unavailable
                | FcmCode::Internal
                | FcmCode::ThirdPartyAuthError
                | FcmCode::Other,
            )
            | None => Verdict::DeviceRefused { code: "unknown_400", suspicious: true },
        }
    }

    fn forbidden(&self, status: StatusCode) -> Verdict {
        match self.fcm {
            Some(FcmCode::SenderIdMismatch) => {
                Verdict::DeviceRefused { code: "SENDER_ID_MISMATCH", suspicious: true }
            }
            Some(FcmCode::ThirdPartyAuthError) => {
                Verdict::DeviceRefused { code: "THIRD_PARTY_AUTH_ERROR", suspicious: true }
            }
            Some(
                FcmCode::Unspecified
                | FcmCode::InvalidArgument
                | FcmCode::Unregistered
                | FcmCode::QuotaExceeded
                | FcmCode::Unavailable
                | FcmCode::Internal
                | FcmCode::Other,
            )
            | None => {
                let by_status = if status == StatusCode::FORBIDDEN {
                    "PERMISSION_DENIED"
                } else {
                    "UNAUTHENTICATED"
                };
                Verdict::Account(AccountFault::Renew { code: self.reason.unwrap_or(by_status) })
            }
        }
    }

    fn not_found(&self) -> Verdict {
        match self.fcm {
            Some(FcmCode::Unregistered) => Verdict::Gone { since: None, code: "UNREGISTERED" },
            Some(
                FcmCode::Unspecified
                | FcmCode::InvalidArgument
                | FcmCode::SenderIdMismatch
                | FcmCode::QuotaExceeded
                | FcmCode::Unavailable
                | FcmCode::Internal
                | FcmCode::ThirdPartyAuthError
                | FcmCode::Other,
            )
            | None => Verdict::Account(AccountFault::Suspect { code: "NOT_FOUND" }),
        }
    }

    /// Reads a body. Fields of another form than the documented one are left out.
    fn read(body: &[u8]) -> Self {
        let mut codes = Self::default();
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        for detail in list(&body["error"]["details"]) {
            let kind = detail["@type"].as_str().and_then(|kind| kind.rsplit('.').next());
            match kind {
                Some("FcmError") => codes.fcm = detail["errorCode"].as_str().map(FcmCode::read),
                Some("BadRequest") => codes.violations.extend(
                    list(&detail["fieldViolations"]).iter().map(|violation| {
                        matches!(violation["field"].as_str(), Some("message.token" | "message.fid"))
                    }),
                ),
                Some("QuotaFailure") => codes.quotas.extend(
                    list(&detail["violations"])
                        .iter()
                        .map(|violation| violation["subject"].as_str().is_some_and(is_of_device)),
                ),
                Some("ErrorInfo") => codes.reason = detail["reason"].as_str().and_then(reason),
                _ => {}
            }
        }
        codes
    }
}

/// Returns true for the subject of a quota that is the device's. Subjects are a kind, a colon and a name;
/// the quotas of a project have the kind `project`.
fn is_of_device(subject: &str) -> bool {
    let (kind, _) = subject.split_once(':').unwrap_or((subject, ""));
    matches!(kind, "device" | "token" | "fid" | "registration_token")
}

/// Returns the reasons of `google.rpc.ErrorInfo` that tell an operator what to change.
fn reason(reason: &str) -> Option<&'static str> {
    const KNOWN: [&str; 11] = [
        "ACCESS_TOKEN_EXPIRED",
        "ACCESS_TOKEN_SCOPE_INSUFFICIENT",
        "ACCESS_TOKEN_TYPE_UNSUPPORTED",
        "ACCOUNT_STATE_INVALID",
        "BILLING_DISABLED",
        "CONSUMER_INVALID",
        "CONSUMER_SUSPENDED",
        "CREDENTIALS_MISSING",
        "IAM_PERMISSION_DENIED",
        "SERVICE_DISABLED",
        "USER_PROJECT_DENIED",
    ];
    KNOWN.into_iter().find(|known| *known == reason)
}

impl FcmCode {
    fn read(code: &str) -> Self {
        match code {
            "UNSPECIFIED_ERROR" => Self::Unspecified,
            "INVALID_ARGUMENT" => Self::InvalidArgument,
            "UNREGISTERED" => Self::Unregistered,
            "SENDER_ID_MISMATCH" => Self::SenderIdMismatch,
            "QUOTA_EXCEEDED" => Self::QuotaExceeded,
            "UNAVAILABLE" => Self::Unavailable,
            "INTERNAL" => Self::Internal,
            "THIRD_PARTY_AUTH_ERROR" => Self::ThirdPartyAuthError,
            _ => Self::Other,
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The answer of the service of access tokens (RFC 6749, sections 5.1 and 5.2).
#[derive(Deserialize, Default)]
#[serde(default)]
struct TokenAnswer {
    access_token: Value,
    expires_in: Value,
    error: Value,
}

/// Reads the answer to an exchange. All times are relative to this machine's clock.
pub(super) fn bearer(answer: &Answer<'_>, now: UnixMillis) -> Result<Bearer, AccountFault> {
    let wait = answer.retry_after();
    let body: TokenAnswer = serde_json::from_slice(answer.body).unwrap_or_default();
    if !answer.status.is_success() {
        return Err(refusal(answer.status, body.error.as_str(), wait));
    }
    let value = body
        .access_token
        .as_str()
        .filter(|token| (1..=MAX_ACCESS_TOKEN_LEN).contains(&token.len()))
        .map(|token| Bytes::from(format!("Bearer {token}")))
        .filter(|value| HeaderValue::from_maybe_shared(value.clone()).is_ok())
        .ok_or(AccountFault::Unavailable { wait })?;
    let life = body.expires_in.as_u64().unwrap_or(USUAL_LIFE).clamp(SHORTEST_LIFE, LONGEST_LIFE);
    Ok(Bearer {
        value,
        renew_at: now.plus_seconds(life - RENEWED_BEFORE.min(life / 2)),
        expires_at: now.plus_seconds(life),
    })
}

/// Judges an exchange that failed.
fn refusal(status: StatusCode, error: Option<&str>, wait: Option<Duration>) -> AccountFault {
    const FOR_NOW: [&str; 3] = ["temporarily_unavailable", "server_error", "internal_failure"];
    const KNOWN: [&str; 12] = [
        "invalid_request",
        "invalid_client",
        "invalid_grant",
        "unauthorized_client",
        "unsupported_grant_type",
        "invalid_scope",
        "access_denied",
        "admin_policy_enforced",
        "deleted_client",
        "disabled_client",
        "org_internal",
        "account_disabled",
    ];
    let passes = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
        || !status.is_client_error() && !status.is_redirection()
        || error.is_some_and(|error| FOR_NOW.contains(&error));
    if passes {
        return AccountFault::Unavailable { wait };
    }
    let known = KNOWN.into_iter().find(|known| error == Some(known));
    let by_status = if status.is_redirection() { "token_uri_redirects" } else { "token_refused" };
    AccountFault::Stop { code: known.unwrap_or(by_status) }
}

#[cfg(test)]
mod tests;
