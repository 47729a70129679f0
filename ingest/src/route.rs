//! From method and path to a call: every path of the contract, and nothing else.
//!
//! Segments are percent-decoded first (RFC 3986: `%3A` and `:` are one character); what is then
//! not in an identifier's alphabet is refused by the identifier.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;
use push_model::ids::MessageId;

use crate::rejection::Rejection;

/// What a request asks for, with the identifiers as they were written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Call<'a> {
    /// `POST /v1/message/push/{AppID}`
    Push {
        app: Cow<'a, str>,
    },
    /// `POST /v1/message/push/{AppID}/batch`
    PushBatch {
        app: Cow<'a, str>,
    },
    /// `PUT /v1/device/{AppID}/{ClientID}`
    PutDevice(Member<'a>),
    GetDevice(Member<'a>),
    DeleteDevice(Member<'a>),
    /// `GET /v1/message/{AppID}/{message_id}`
    GetMessage(Member<'a>),
    RecallMessage(Member<'a>),
}

/// Something that belongs to an app.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Member<'a> {
    pub(crate) app: Cow<'a, str>,
    pub(crate) id: Cow<'a, str>,
}

const POST_ONLY: &str = "POST";
const DEVICE_METHODS: &str = "GET, PUT, DELETE";
const MESSAGE_METHODS: &str = "GET, DELETE";

impl<'a> Call<'a> {
    /// The name of the push call in metrics.
    pub(crate) const PUSH: &'static str = "push";
    /// The name in metrics of one push of many in a request.
    pub(crate) const LINE: &'static str = "push_batch_line";
    /// The name in metrics of what is no call.
    pub(crate) const NONE: &'static str = "none";

    /// The call of a request.
    pub(crate) fn of(method: &Method, path: &'a str) -> Result<Self, Rejection> {
        let rest = path.strip_prefix("/v1/").ok_or(Rejection::NoSuchPath)?;
        let mut segments = rest.split('/');
        let (kind, first, second) = (segments.next(), segments.next(), segments.next());
        let third = segments.next();
        if segments.next().is_some() {
            return Err(Rejection::NoSuchPath);
        }
        match (kind, first, second, third) {
            (Some("message"), Some("push"), app, None) => {
                Self::push(method, app.unwrap_or_default())
            }
            (Some("message"), Some("push"), Some(app), Some("batch")) => match *method {
                Method::POST => Ok(Self::PushBatch { app: decode(app) }),
                _ => Err(Rejection::NoSuchMethod(POST_ONLY)),
            },
            (Some("message"), Some(app), Some(id), None) => Self::message(method, app, id),
            (Some("device"), Some(app), Some(id), None) => {
                let member = Member { app: decode(app), id: decode(id) };
                match *method {
                    Method::PUT => Ok(Self::PutDevice(member)),
                    Method::GET => Ok(Self::GetDevice(member)),
                    Method::DELETE => Ok(Self::DeleteDevice(member)),
                    _ => Err(Rejection::NoSuchMethod(DEVICE_METHODS)),
                }
            }
            _ => Err(Rejection::NoSuchPath),
        }
    }

    fn push(method: &Method, app: &'a str) -> Result<Self, Rejection> {
        if method == Method::POST {
            return Ok(Self::Push { app: decode(app) });
        }
        // An app may be named "push"; a message id tells its messages from pushes to an app.
        if matches!(*method, Method::GET | Method::DELETE) && app.parse::<MessageId>().is_ok() {
            return Self::message(method, "push", app);
        }
        Err(Rejection::NoSuchMethod(POST_ONLY))
    }

    fn message(method: &Method, app: &'a str, id: &'a str) -> Result<Self, Rejection> {
        let member = Member { app: decode(app), id: decode(id) };
        match *method {
            Method::GET => Ok(Self::GetMessage(member)),
            Method::DELETE => Ok(Self::RecallMessage(member)),
            _ => Err(Rejection::NoSuchMethod(MESSAGE_METHODS)),
        }
    }

    /// The name in metrics.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Push { .. } => Self::PUSH,
            Self::PushBatch { .. } => "push_batch",
            Self::PutDevice(_) => "put_device",
            Self::GetDevice(_) => "get_device",
            Self::DeleteDevice(_) => "delete_device",
            Self::GetMessage(_) => "get_message",
            Self::RecallMessage(_) => "recall_message",
        }
    }
}

/// What is no UTF-8 after decoding becomes U+FFFD, which no identifier allows.
fn decode(segment: &str) -> Cow<'_, str> {
    percent_decode_str(segment).decode_utf8_lossy()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(method: &Method, path: &'a str) -> Result<Call<'a>, Rejection> {
        Call::of(method, path)
    }

    #[test]
    fn a_push_without_an_app_is_still_a_push() {
        for path in ["/v1/message/push", "/v1/message/push/"] {
            assert_eq!(of(&Method::POST, path), Ok(Call::Push { app: "".into() }), "{path}");
        }
    }

    #[test]
    fn unknown_paths_and_methods_are_told_apart() {
        for path in [
            "/",
            "",
            "*",
            "/v1",
            "/v1/",
            "/v2/message/push/a",
            "/v1/device/a",
            "/v1/message/push/a/b",
            "/v1/message/push/a/batch/",
            "/v1/message/push/a/b/batch",
            "/v1/message/a/b/batch",
            "/v1/device/a/b/c",
            "/v1/device/a/b/batch",
            "/V1/message/push/a",
        ] {
            assert_eq!(of(&Method::POST, path), Err(Rejection::NoSuchPath), "{path}");
        }
        assert_eq!(of(&Method::GET, "/v1/message/push/a"), Err(Rejection::NoSuchMethod(POST_ONLY)));
        assert_eq!(
            of(&Method::POST, "/v1/device/a/b"),
            Err(Rejection::NoSuchMethod(DEVICE_METHODS))
        );
        assert_eq!(
            of(&Method::PUT, "/v1/message/a/b"),
            Err(Rejection::NoSuchMethod(MESSAGE_METHODS))
        );
    }

    #[test]
    fn many_pushes_have_a_path_of_their_own_and_an_app_may_be_named_batch() {
        for (path, app) in [("/v1/message/push/a/batch", "a"), ("/v1/message/push//batch", "")] {
            assert_eq!(of(&Method::POST, path), Ok(Call::PushBatch { app: app.into() }), "{path}");
            assert_eq!(of(&Method::GET, path), Err(Rejection::NoSuchMethod(POST_ONLY)), "{path}");
        }
        let single = Ok(Call::Push { app: "batch".into() });
        assert_eq!(of(&Method::POST, "/v1/message/push/batch"), single);
    }

    #[test]
    fn percent_encoded_characters_are_the_characters() {
        let Ok(Call::GetDevice(member)) = of(&Method::GET, "/v1/device/a%2Eb/c%3Ad") else {
            panic!("a device call");
        };
        assert_eq!((&*member.app, &*member.id), ("a.b", "c:d"));
        assert_eq!(
            of(&Method::POST, "/v1/message/push/%FF"),
            Ok(Call::Push { app: "\u{fffd}".into() })
        );
    }

    #[test]
    fn an_app_may_be_named_push() {
        let path = "/v1/message/push/01890000-0000-7000-8000-000000000000";
        assert!(matches!(of(&Method::GET, path), Ok(Call::GetMessage(_))));
        assert!(matches!(of(&Method::POST, path), Ok(Call::Push { .. })));
    }
}
