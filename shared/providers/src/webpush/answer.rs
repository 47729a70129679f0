//! The answer of a push service. The status alone decides: what stands in bodies differs among services.

use http::StatusCode;

use crate::{
    exchange::Answer,
    verdict::{AccountFault, Verdict, Whom},
};

/// Reads the answer to the message for one device.
///
/// A device names the push service itself. So no answer is about other devices: a message that one service
/// finds too long may be carried by others, and a 401 or 403 may be about the subscription, which belongs to
/// the key with which it was made, as well as about the account.
pub(super) fn verdict(answer: &Answer<'_>) -> Verdict {
    let wait = answer.retry_after();
    let refused = |code| Verdict::DeviceRefused { code, suspicious: true };
    match answer.status {
        status if status.is_success() => Verdict::Sent,
        StatusCode::NOT_FOUND => Verdict::Gone { since: None, code: "404" },
        StatusCode::GONE => Verdict::Gone { since: None, code: "410" },
        StatusCode::PAYLOAD_TOO_LARGE => {
            Verdict::DeviceRefused { code: "payload_too_large", suspicious: false }
        }
        StatusCode::TOO_MANY_REQUESTS => Verdict::Throttled { whom: Whom::Device, wait },
        StatusCode::UNAUTHORIZED => {
            Verdict::Account(AccountFault::Suspect { code: "unauthorized" })
        }
        StatusCode::FORBIDDEN => Verdict::Account(AccountFault::Suspect { code: "forbidden" }),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY => Verdict::Unavailable { wait },
        StatusCode::BAD_REQUEST => refused("bad_request"),
        status if status.is_client_error() => refused("client_error"),
        status if status.is_redirection() => refused("redirect"),
        _ => Verdict::Unavailable { wait },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::answered;

    fn judge(status: u16, retry_after: Option<u32>) -> Verdict {
        answered(status, retry_after, b"\xff\0{", verdict)
    }

    #[test]
    fn every_status_has_its_meaning() {
        let suspect = |code| Verdict::Account(AccountFault::Suspect { code });
        let refused = |code| Verdict::DeviceRefused { code, suspicious: true };
        for (status, verdict) in [
            (200, Verdict::Sent),
            (201, Verdict::Sent),
            (202, Verdict::Sent),
            (204, Verdict::Sent),
            (301, refused("redirect")),
            (307, refused("redirect")),
            (400, refused("bad_request")),
            (401, suspect("unauthorized")),
            (403, suspect("forbidden")),
            (404, Verdict::Gone { since: None, code: "404" }),
            (405, refused("client_error")),
            (408, Verdict::Unavailable { wait: None }),
            (410, Verdict::Gone { since: None, code: "410" }),
            (413, Verdict::DeviceRefused { code: "payload_too_large", suspicious: false }),
            (429, Verdict::Throttled { whom: Whom::Device, wait: None }),
            (500, Verdict::Unavailable { wait: None }),
            (503, Verdict::Unavailable { wait: None }),
            (999, Verdict::Unavailable { wait: None }),
        ] {
            assert_eq!(judge(status, None), verdict, "{status}");
        }
    }

    #[test]
    fn a_push_service_says_how_long_to_wait() {
        let wait = Some(Duration::from_secs(120));
        assert_eq!(judge(429, Some(120)), Verdict::Throttled { whom: Whom::Device, wait });
        assert_eq!(judge(503, Some(120)), Verdict::Unavailable { wait });
    }

    #[test]
    fn no_status_reads_as_sent_or_gone_by_accident_or_harms_other_devices() {
        for status in 100..1000 {
            match judge(status, None) {
                Verdict::Sent => assert!((200..300).contains(&status), "{status}"),
                Verdict::Gone { .. } => assert!([404, 410].contains(&status), "{status}"),
                Verdict::MessageRefused { .. }
                | Verdict::Throttled { whom: Whom::Account, .. }
                | Verdict::Account(AccountFault::Stop { .. } | AccountFault::Renew { .. }) => {
                    panic!("{status} harms other devices")
                }
                _ => {}
            }
        }
    }
}
