//! Everything that is answered with an error: its status, and the text for the caller.

use http::StatusCode;
use push_model::{admin_key::Role, ids::AppId};
use push_operator::refusal::FailureKind;

/// The reason why a request is not answered 200.
#[derive(Debug)]
pub enum Refused {
    /// There is no key in the request.
    NoKey,
    /// The key is not one of this installation, was revoked, or its app was removed.
    WrongKey,
    /// The address has presented too many wrong keys. It may present one more after so many seconds.
    TooManyWrongKeys {
        /// Whole seconds.
        retry_after: u64,
    },
    /// The keys of an app have made too many changes. They may make one more after so many seconds.
    TooManyChanges {
        /// The app.
        app: AppId,
        /// Whole seconds.
        retry_after: u64,
    },
    /// The role of the key is too weak.
    Role {
        /// The role of the key.
        has: Role,
        /// The role that the call needs.
        needs: Role,
    },
    /// The key is one of another app.
    OtherApp {
        /// The only app that it opens.
        own: AppId,
    },
    /// No route has this path.
    NoSuchPath,
    /// The path has other methods.
    NoSuchMethod,
    /// The body is not JSON by its media type.
    MediaType,
    /// The body is larger than this.
    TooLarge(usize),
    /// The body did not arrive in time.
    BodyTimeout,
    /// The connection broke while the body was read.
    BodyCut,
    /// What the caller gave cannot be read, or is not allowed.
    Invalid(String),
    /// The program was started without something that this needs.
    NotSetUp(&'static str),
    /// Too many requests are in work.
    Busy,
    /// Another try can help, for this reason.
    NotNow(String),
    /// The work takes too long, and goes on.
    Late,
    /// A fault of the program.
    Broken,
    /// The use case was not done.
    UseCase(anyhow::Error),
}

impl From<anyhow::Error> for Refused {
    fn from(error: anyhow::Error) -> Self {
        Self::UseCase(error)
    }
}

impl Refused {
    /// The HTTP status of every answer that is not a success.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoKey | Self::WrongKey => StatusCode::UNAUTHORIZED,
            Self::TooManyWrongKeys { .. } | Self::TooManyChanges { .. } => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::Role { .. } | Self::OtherApp { .. } => StatusCode::FORBIDDEN,
            Self::NoSuchPath => StatusCode::NOT_FOUND,
            Self::NoSuchMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::BodyCut | Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::NotSetUp(_) => StatusCode::CONFLICT,
            Self::Busy | Self::NotNow(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Late => StatusCode::GATEWAY_TIMEOUT,
            Self::Broken => StatusCode::INTERNAL_SERVER_ERROR,
            Self::UseCase(error) => match FailureKind::of(error) {
                FailureKind::Missing => StatusCode::NOT_FOUND,
                FailureKind::Conflict => StatusCode::CONFLICT,
                FailureKind::Invalid => StatusCode::BAD_REQUEST,
                FailureKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
                FailureKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            },
        }
    }

    /// The time that the caller should wait, in seconds, if it is to try again.
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Self::TooManyWrongKeys { retry_after } | Self::TooManyChanges { retry_after, .. } => {
                Some(*retry_after)
            }
            _ => (self.status() == StatusCode::SERVICE_UNAVAILABLE).then_some(1),
        }
    }

    /// The text for the caller. Operators may read the causes of failures.
    pub fn message(&self) -> String {
        match self {
            Self::NoKey => {
                "there is no key: send `Authorization: Bearer KEY`; `pushctl admin-key add` makes one".to_owned()
            }
            Self::WrongKey => "the key is not valid: it is wrong, was revoked, or its app was removed".to_owned(),
            Self::TooManyWrongKeys { retry_after } => {
                format!("too many wrong keys came from this address: try again in {retry_after} s")
            }
            Self::TooManyChanges { app, retry_after } => {
                format!("the keys of {app} have made too many changes: try again in {retry_after} s")
            }
            Self::Role { has, needs } => {
                format!("this needs a key with the role {needs}, and this key has the role {has}")
            }
            Self::OtherApp { own } => format!("this key opens the app {own} alone"),
            Self::NoSuchPath => "there is no such path".to_owned(),
            Self::NoSuchMethod => "the path has other methods: see the header Allow".to_owned(),
            Self::MediaType => "the body must be sent with Content-Type: application/json".to_owned(),
            Self::TooLarge(most) => format!("the body has more than {most} bytes"),
            Self::BodyTimeout => "the body did not arrive in time".to_owned(),
            Self::BodyCut => "the body ended too early".to_owned(),
            Self::Invalid(why) | Self::NotNow(why) => why.clone(),
            Self::NotSetUp(what) => (*what).to_owned(),
            Self::Busy => "try again: too many requests are in work".to_owned(),
            Self::Late => {
                "it takes long, and goes on: look what came of it before you try again".to_owned()
            }
            Self::Broken => "a fault of the program, which its log describes".to_owned(),
            Self::UseCase(error) => format!("{error:#}"),
        }
    }
}
