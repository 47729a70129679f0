//! The answer of an app's receiver: docs/reference/webhook.md is its contract.

use std::time::Duration;

use http::StatusCode;
use serde_json::Value;

use super::token::Token;
use crate::{
    Device,
    exchange::{Answer, longest_wait},
    verdict::{AccountFault, Verdict, Whom},
};

/// Reads the answer to a request for these devices: one verdict for each, in their order.
///
/// With 502, 503 and 504 something before the receiver may have answered after the receiver took the
/// message, so these are no proof that it was not taken.
pub(super) fn verdicts(answer: &Answer<'_>, devices: &[Device<'_, Token>]) -> Vec<Verdict> {
    match refusal(answer) {
        None => outcomes(answer.body, devices),
        Some(refusal) => vec![refusal; devices.len()],
    }
}

/// Reads the status; `None` for a 2xx.
pub(super) fn refusal(answer: &Answer<'_>) -> Option<Verdict> {
    let wait = answer.retry_after();
    Some(match answer.status {
        status if status.is_success() => return None,
        StatusCode::GONE => Verdict::Account(AccountFault::Stop { code: "disabled" }),
        StatusCode::TOO_MANY_REQUESTS => Verdict::Throttled { whom: Whom::Account, wait },
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY => Verdict::Unavailable { wait },
        status if status.is_client_error() => Verdict::MessageRefused { code: code(status) },
        status if status.is_redirection() => {
            Verdict::Account(AccountFault::Suspect { code: "redirect" })
        }
        _ => Verdict::Unavailable { wait },
    })
}

fn code(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "bad_request",
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
        StatusCode::PAYLOAD_TOO_LARGE => "payload_too_large",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "unsupported_media_type",
        _ => "client_error",
    }
}

/// Reads the outcomes in the body of a 2xx. A device without one was taken, and all were if the body has
/// another form than ours.
fn outcomes(body: &[u8], devices: &[Device<'_, Token>]) -> Vec<Verdict> {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let outcomes = body.get("devices");
    let outcome = |device: &Device<'_, Token>| outcomes?.get(device.client_id);
    devices.iter().map(|device| outcome(device).map_or(Verdict::Sent, verdict)).collect()
}

fn verdict(outcome: &Value) -> Verdict {
    let after = outcome.get("after").and_then(Value::as_u64);
    match outcome.get("status").and_then(Value::as_str) {
        Some("sent") => Verdict::Sent,
        Some("gone") => Verdict::Gone { since: None, code: "gone" },
        Some("refused") => Verdict::DeviceRefused { code: "refused", suspicious: false },
        Some("retry") => Verdict::Throttled {
            whom: Whom::Device,
            wait: after.map(|after| longest_wait(Duration::from_secs(after))),
        },
        // The receiver means to say something, and it is not that the message was taken.
        _ => Verdict::DeviceRefused { code: "unknown_status", suspicious: false },
    }
}
