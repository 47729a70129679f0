//! Every answer that is not a success: its reason, its code and the text for the caller.
//!
//! The text for a push begins with the meaning of its code, followed by the field and the rule for
//! it. Internal causes are not for the caller: the cause of a 503 goes to the log. The one
//! exception is the reason why a broker takes nothing for now, because it tells the caller how long
//! that may last.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    sync::Arc,
};

use http::StatusCode;
use push_model::{
    app::Scope,
    codes::PushCode,
    ids::{AppId, BadId, MessageId},
};

use crate::allowance::{QuotaUsedUp, RateStatus};

/// The reason why a request is not answered 200.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// The request is not HTTP, or its head is cut short.
    NotHttp,
    /// The head leaves a doubt where the request ends or whom it is for; this says what is wrong.
    Malformed(&'static str),
    /// The head did not arrive in time.
    HeadTimeout,
    /// The head has more bytes than the setting allows.
    HeadTooLarge,
    /// No route has this path.
    NoSuchPath,
    /// The path has other methods: these.
    NoSuchMethod(&'static str),
    /// 21001
    AppIdMissing,
    /// 21002
    AppIdIllegal(BadId),
    /// 21003
    SecretMissing,
    /// 21004: the secret is wrong, or there is no such app. The caller does not learn which.
    SecretIllegal,
    /// The secret is wrong, and so were too many of the client's address. It may fail again after so
    /// many seconds.
    TooManyFailedLogins { retry_after: u64 },
    /// 21004: the secret is one of the app, but not one for this call.
    ScopeMissing(Scope),
    /// 21007
    AppDisabled,
    /// The app went to another store, where it can be called; this service takes nothing for it.
    AppMoved,
    /// 22001
    TooFrequent(RateStatus),
    /// The app makes too many calls other than pushes.
    TooManyCalls(RateStatus),
    /// 21005: the body of a push has another media type.
    MessageMediaType(&'static str),
    /// 21005: the body of a push is larger than this.
    MessageTooLarge(usize),
    /// 21005: a batch request has more pushes than this.
    TooManyLines(usize),
    /// 21005: a batch request has more lines that are no push than this.
    TooManyBlankLines(usize),
    /// 21005: a push that cannot be read or is not allowed.
    MessageIllegal(String),
    /// 21006
    TooManyClients {
        /// The number of different client ids and users.
        given: usize,
        /// The most that there may be.
        limit: usize,
        /// Some of them are users.
        with_users: bool,
    },
    /// 21006: the users of a push have more devices than one push may name.
    TooManyUserDevices { limit: usize },
    /// The body of another request has another media type.
    MediaType(&'static str),
    /// The body of another request is larger than this.
    TooLarge(usize),
    /// A request has more changes of devices than this.
    TooManyChanges(usize),
    /// Another request that cannot be read or is not allowed.
    Illegal(String),
    /// The body did not arrive in time.
    BodyTimeout,
    /// The body arrived with fewer bytes a second than this.
    BodyTooSlow(NonZeroUsize),
    /// 21004: the bearer token is not one of this device, for this reason.
    DeviceToken(&'static str),
    /// The device asked for more than it may have for its own record.
    Forbidden(&'static str),
    /// The device makes too many calls. It may make another one after so many seconds.
    DeviceTooFrequent { retry_after: u64 },
    /// The app has no such device, user or message; this says which.
    Unknown(&'static str),
    /// The app has as many devices as it may.
    DevicesUsedUp { app: AppId, most: NonZeroU32 },
    /// A quota of the app's messages is used up.
    MessagesUsedUp { app: AppId, used_up: QuotaUsedUp },
    /// The idempotency key was used for another body: that of this message.
    KeyUsed(MessageId),
    /// The index has no room for the device.
    NoRoom(String),
    /// The service cannot do it now. The caller can try again.
    Unavailable(&'static str),
    /// The queue's server takes no messages for now, for this reason. The caller can try again.
    QueueBlocked(Arc<str>),
}

impl Rejection {
    /// The HTTP status of every answer that is not a success.
    pub(crate) const fn http_status(&self) -> StatusCode {
        match self {
            Self::NotHttp
            | Self::Malformed(_)
            | Self::AppIdMissing
            | Self::AppIdIllegal(_)
            | Self::MessageIllegal(_)
            | Self::TooManyClients { .. }
            | Self::TooManyUserDevices { .. }
            | Self::Illegal(_) => StatusCode::BAD_REQUEST,
            Self::SecretMissing
            | Self::SecretIllegal
            | Self::ScopeMissing(_)
            | Self::DeviceToken(_) => StatusCode::UNAUTHORIZED,
            Self::AppDisabled | Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NoSuchPath | Self::Unknown(_) => StatusCode::NOT_FOUND,
            Self::NoSuchMethod(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::HeadTimeout | Self::BodyTimeout | Self::BodyTooSlow(_) => {
                StatusCode::REQUEST_TIMEOUT
            }
            Self::NoRoom(_) | Self::DevicesUsedUp { .. } => StatusCode::CONFLICT,
            Self::KeyUsed(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::MessageTooLarge(_)
            | Self::TooManyLines(_)
            | Self::TooManyBlankLines(_)
            | Self::TooManyChanges(_)
            | Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::MessageMediaType(_) | Self::MediaType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooFrequent(_)
            | Self::TooManyCalls(_)
            | Self::TooManyFailedLogins { .. }
            | Self::DeviceTooFrequent { .. }
            | Self::MessagesUsedUp { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Unavailable(_) | Self::QueueBlocked(_) | Self::AppMoved => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// The code of the push specification, if it has one for this.
    pub(crate) const fn push_code(&self) -> Option<PushCode> {
        match self {
            Self::AppIdMissing => Some(PushCode::AppIdMissing),
            Self::AppIdIllegal(_) => Some(PushCode::AppIdIllegal),
            Self::SecretMissing => Some(PushCode::AppSecretMissing),
            Self::SecretIllegal | Self::ScopeMissing(_) | Self::DeviceToken(_) => {
                Some(PushCode::AppSecretIllegal)
            }
            Self::AppDisabled => Some(PushCode::AppDisabled),
            Self::TooFrequent(_) => Some(PushCode::TooFrequent),
            Self::MessageMediaType(_)
            | Self::MessageTooLarge(_)
            | Self::TooManyLines(_)
            | Self::TooManyBlankLines(_)
            | Self::MessageIllegal(_) => Some(PushCode::MessageIllegal),
            Self::TooManyClients { .. } | Self::TooManyUserDevices { .. } => {
                Some(PushCode::ClientIdTooMuch)
            }
            Self::NotHttp
            | Self::Malformed(_)
            | Self::HeadTimeout
            | Self::HeadTooLarge
            | Self::NoSuchPath
            | Self::NoSuchMethod(_)
            | Self::TooManyCalls(_)
            | Self::TooManyFailedLogins { .. }
            | Self::MediaType(_)
            | Self::TooLarge(_)
            | Self::TooManyChanges(_)
            | Self::Illegal(_)
            | Self::BodyTimeout
            | Self::BodyTooSlow(_)
            | Self::Forbidden(_)
            | Self::DeviceTooFrequent { .. }
            | Self::Unknown(_)
            | Self::KeyUsed(_)
            | Self::NoRoom(_)
            | Self::DevicesUsedUp { .. }
            | Self::MessagesUsedUp { .. }
            | Self::Unavailable(_)
            | Self::QueueBlocked(_)
            | Self::AppMoved => None,
        }
    }

    /// The number in `status`: the code of the push specification, or the HTTP status.
    pub(crate) fn number(&self) -> u32 {
        self.push_code().map_or_else(|| self.http_status().as_u16().into(), PushCode::number)
    }

    /// The text for the caller.
    pub(crate) fn message(&self) -> String {
        match self.push_code() {
            Some(code) => format!("{}: {}", code.meaning(), self.detail()),
            None => self.detail(),
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::NotHttp => "the request is not readable as HTTP/1.1 or HTTP/2".into(),
            Self::Malformed(why) => format!("the request is malformed: {why}"),
            Self::HeadTimeout => "the request's headers did not arrive in time".into(),
            Self::HeadTooLarge => "the request's headers are too large".into(),
            Self::NoSuchPath => "no such path".into(),
            Self::NoSuchMethod(allow) => format!("this path takes {allow}"),
            Self::AppIdMissing => "the path must name it, as in /v1/message/push/{AppID}".into(),
            Self::AppIdIllegal(problem) => format!("it {problem}"),
            Self::SecretMissing => "the Authorization header must hold it".into(),
            Self::SecretIllegal => "it is not a secret of this app (the Authorization header is \
                                    the bare secret, without a scheme word)"
                .into(),
            Self::TooManyFailedLogins { .. } => "too many requests from this address had a wrong \
                                                 secret, and so has this one: check the App ID \
                                                 and the secret"
                .into(),
            Self::ScopeMissing(scope) => format!(
                "it lacks the scope {}, which this call needs: use a secret that has it (pushctl \
                 app secret list shows the secrets of the app and their scopes)",
                scope.name()
            ),
            Self::AppDisabled => "this app may not push now".into(),
            Self::AppMoved => {
                "try again: this app moves to another installation of the service, or \
                               has moved: call that one"
                    .into()
            }
            Self::TooFrequent(quota) => {
                format!("this app may push {} times a second", quota.limit)
            }
            Self::TooManyCalls(quota) => {
                format!("this app may make {} calls other than pushes a second", quota.limit)
            }
            Self::MessageMediaType(problem) | Self::MediaType(problem) => (*problem).into(),
            Self::MessageTooLarge(limit) | Self::TooLarge(limit) => {
                format!("the body must be at most {limit} bytes")
            }
            Self::TooManyLines(limit) => format!("the body must have at most {limit} pushes"),
            Self::TooManyChanges(limit) => format!("the body must have at most {limit} changes"),
            Self::TooManyBlankLines(limit) => {
                format!("the body must have at most {limit} lines without a push")
            }
            Self::MessageIllegal(problem) | Self::Illegal(problem) | Self::NoRoom(problem) => {
                problem.clone()
            }
            Self::TooManyClients { given, limit, with_users: false } => format!(
                "condition.client_ids names {given} different devices, at most {limit} are allowed"
            ),
            Self::TooManyClients { given, limit, with_users: true } => format!(
                "condition.client_ids and condition.user_ids name {given} different devices and \
                 users, at most {limit} are allowed"
            ),
            Self::TooManyUserDevices { limit } => format!(
                "the users of condition.user_ids and the devices of condition.client_ids are more than \
                 {limit} devices together, which is the most: name fewer users"
            ),
            Self::DeviceToken(why) => format!(
                "the bearer token is not valid for this device: {why}. The app's backend registers \
                 the device to get another one"
            ),
            Self::Forbidden(why) => (*why).into(),
            Self::DeviceTooFrequent { .. } => "this device makes too many calls".into(),
            Self::BodyTimeout => "the request's body did not arrive in time".into(),
            Self::BodyTooSlow(rate) => {
                format!("the request's body came with fewer than {rate} bytes a second")
            }
            Self::DevicesUsedUp { app, most } => format!(
                "the quota max-devices is used up: this app may have {most} devices. Remove some, \
                 or have the operator raise it: pushctl app set {app} --max-devices N"
            ),
            Self::MessagesUsedUp { app, used_up: QuotaUsedUp { quota, what, most, .. } } => {
                format!(
                    "the quota {quota} is used up: this app may have {most} {what}. Try again later, or \
                 have the operator raise it: pushctl app set {app} --{quota} N"
                )
            }
            Self::KeyUsed(message) => format!(
                "the Idempotency-Key was used for another body: that of message {message}. Send this \
                 push with a key of its own; to repeat the first one, send its body unchanged"
            ),
            Self::Unknown(what) => format!("this app has no such {what}"),
            Self::Unavailable(why) => format!("try again: {why}"),
            Self::QueueBlocked(why) => {
                format!("try again: the queue takes no messages for now: {why}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_have_the_http_statuses_of_the_contract() {
        let bad_id = "".parse::<push_model::ids::AppId>().unwrap_err();
        let quota = RateStatus::default();
        let app: AppId = "a".parse().unwrap();
        let (quota_name, what, most) = ("max-waiting", "waiting messages", NonZeroU32::MIN);
        let used_up = QuotaUsedUp { quota: quota_name, what, most, retry_after: 5 };
        let table = [
            (Rejection::AppIdMissing, 400, 21001),
            (Rejection::AppIdIllegal(bad_id), 400, 21002),
            (Rejection::SecretMissing, 401, 21003),
            (Rejection::SecretIllegal, 401, 21004),
            (Rejection::ScopeMissing(Scope::Push), 401, 21004),
            (Rejection::MessageIllegal(String::new()), 400, 21005),
            (Rejection::MessageTooLarge(1), 413, 21005),
            (Rejection::TooManyLines(1), 413, 21005),
            (Rejection::TooManyBlankLines(1), 413, 21005),
            (Rejection::MessageMediaType(""), 415, 21005),
            (Rejection::TooManyClients { given: 2, limit: 1, with_users: true }, 400, 21006),
            (Rejection::TooManyUserDevices { limit: 1 }, 400, 21006),
            (Rejection::DeviceToken(""), 401, 21004),
            (Rejection::Forbidden(""), 403, 403),
            (Rejection::DeviceTooFrequent { retry_after: 1 }, 429, 429),
            (Rejection::AppDisabled, 403, 21007),
            (Rejection::AppMoved, 503, 503),
            (Rejection::TooFrequent(quota), 429, 22001),
            (Rejection::TooManyCalls(quota), 429, 429),
            (Rejection::TooManyFailedLogins { retry_after: 1 }, 429, 429),
            (Rejection::DevicesUsedUp { app: app.clone(), most: NonZeroU32::MIN }, 409, 409),
            (Rejection::MessagesUsedUp { app, used_up }, 429, 429),
            (Rejection::KeyUsed(MessageId::issue_named(&"a".parse().unwrap())), 422, 422),
            (Rejection::NoSuchPath, 404, 404),
            (Rejection::NoSuchMethod("POST"), 405, 405),
            (Rejection::Unavailable(""), 503, 503),
            (Rejection::QueueBlocked("".into()), 503, 503),
        ];
        for (rejection, http, number) in table {
            assert_eq!(rejection.http_status().as_u16(), http, "{rejection:?}");
            assert_eq!(rejection.number(), number, "{rejection:?}");
        }
    }

    #[test]
    fn a_message_begins_with_the_meaning_of_its_code() {
        assert!(Rejection::SecretMissing.message().starts_with("App Secret missing: "));
        assert!(Rejection::MessageTooLarge(5).message().starts_with("Message illegal: "));
    }
}
