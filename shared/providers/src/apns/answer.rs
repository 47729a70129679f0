//! The answers of APNs: a status, and in the body a `reason` and the time since which a device is gone.

use http::StatusCode;
use push_model::time::UnixMillis;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    exchange::Answer,
    verdict::{AccountFault, Verdict, Whom},
};

/// The body of an answer.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Body {
    reason: Value,
    timestamp: Value,
}

/// Declares the documented reasons once, as an enum and as text.
macro_rules! reasons {
    ($($reason:ident)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Reason {
            $($reason,)*
            /// A reason that is not documented.
            Other,
            /// A body without a reason.
            Missing,
        }

        impl Reason {
            #[cfg(test)]
            const DOCUMENTED: &[Self] = &[$(Self::$reason,)*];

            fn read(reason: Option<&str>) -> Self {
                match reason {
                    $(Some(stringify!($reason)) => Self::$reason,)*
                    Some(_) => Self::Other,
                    None => Self::Missing,
                }
            }

            const fn name(self) -> &'static str {
                match self {
                    $(Self::$reason => stringify!($reason),)*
                    Self::Other => "unknown_reason",
                    Self::Missing => "no_reason",
                }
            }
        }
    };
}

reasons! {
    BadCollapseId BadDeviceToken BadExpirationDate BadMessageId BadPriority BadTopic
    DeviceTokenNotForTopic DuplicateHeaders IdleTimeout InvalidPushType MissingDeviceToken MissingTopic
    PayloadEmpty TopicDisallowed
    BadCertificate BadCertificateEnvironment BadEnvironmentKeyIdInToken BadEnvironmentKeyInToken
    ExpiredProviderToken Forbidden InvalidProviderToken MissingProviderToken UnrelatedKeyIdInToken
    BadPath MethodNotAllowed
    ExpiredToken Unregistered
    PayloadTooLarge
    TooManyProviderTokenUpdates TooManyRequests
    InternalServerError ServiceUnavailable Shutdown
}

/// Reads the answer to a notification.
pub(super) fn verdict(answer: &Answer<'_>) -> Verdict {
    if answer.status.is_success() {
        return Verdict::Sent;
    }
    let body: Body = serde_json::from_slice(answer.body).unwrap_or_default();
    let reason = Reason::read(body.reason.as_str());
    let code = reason.name();
    let wait = answer.retry_after();
    match reason {
        // A device is removed by this pair of status and reason alone.
        Reason::Unregistered | Reason::ExpiredToken if answer.status == StatusCode::GONE => {
            let since = body.timestamp.as_u64().map(|at| UnixMillis(at).min(UnixMillis::MAX));
            Verdict::Gone { since, code }
        }
        Reason::Unregistered
        | Reason::ExpiredToken
        | Reason::BadDeviceToken
        | Reason::DeviceTokenNotForTopic
        | Reason::MissingDeviceToken
        | Reason::BadPath => Verdict::DeviceRefused { code, suspicious: true },

        Reason::BadCollapseId
        | Reason::BadExpirationDate
        | Reason::BadMessageId
        | Reason::BadPriority
        | Reason::DuplicateHeaders
        | Reason::InvalidPushType
        | Reason::PayloadEmpty
        | Reason::PayloadTooLarge => Verdict::MessageRefused { code },

        Reason::ExpiredProviderToken => Verdict::Account(AccountFault::Renew { code }),

        Reason::BadTopic
        | Reason::MissingTopic
        | Reason::TopicDisallowed
        | Reason::BadCertificate
        | Reason::BadCertificateEnvironment
        | Reason::BadEnvironmentKeyIdInToken
        | Reason::BadEnvironmentKeyInToken
        | Reason::Forbidden
        | Reason::InvalidProviderToken
        | Reason::MissingProviderToken
        | Reason::UnrelatedKeyIdInToken
        | Reason::MethodNotAllowed => Verdict::Account(AccountFault::Stop { code }),

        // A new provider token would be one update more.
        Reason::IdleTimeout | Reason::TooManyProviderTokenUpdates => Verdict::Reconnect,
        Reason::TooManyRequests => Verdict::Throttled { whom: Whom::Device, wait },
        Reason::InternalServerError | Reason::ServiceUnavailable | Reason::Shutdown => {
            Verdict::Unavailable { wait }
        }
        Reason::Other | Reason::Missing => by_status(answer.status, reason, wait),
    }
}

/// Reads the answer to the request for a device token that no device has. APNs looks at the token only after it
/// has accepted the account.
pub(super) fn probed(answer: &Answer<'_>) -> Result<(), Verdict> {
    match verdict(answer) {
        Verdict::Sent
        | Verdict::Gone { .. }
        | Verdict::DeviceRefused { code: "BadDeviceToken" | "DeviceTokenNotForTopic", .. } => {
            Ok(())
        }
        other => Err(other),
    }
}

/// Judges an answer without a reason that is known. An answer without a reason may not be from APNs, so it
/// never refuses the message, stops the account or removes a device.
fn by_status(status: StatusCode, reason: Reason, wait: Option<std::time::Duration>) -> Verdict {
    let code = reason.name();
    match status {
        StatusCode::BAD_REQUEST if reason == Reason::Other => Verdict::MessageRefused { code },
        StatusCode::FORBIDDEN if reason == Reason::Other => {
            Verdict::Account(AccountFault::Stop { code })
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Verdict::Account(AccountFault::Suspect { code })
        }
        StatusCode::PAYLOAD_TOO_LARGE => Verdict::MessageRefused { code },
        StatusCode::TOO_MANY_REQUESTS => Verdict::Throttled { whom: Whom::Account, wait },
        StatusCode::REQUEST_TIMEOUT => Verdict::Unavailable { wait },
        _ if status.is_client_error() => Verdict::DeviceRefused { code, suspicious: true },
        _ => Verdict::Unavailable { wait },
    }
}

#[cfg(test)]
mod tests;
