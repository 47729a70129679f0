//! Turns method and path into a route: every path of the contract, and nothing else.
//!
//! Segments are percent-decoded (RFC 3986: `%3A` and `:` are the same character). The handler that
//! parses an identifier checks later that it is valid.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;
use push_model::ids::MessageId;

use crate::rejection::Rejection;

/// The call that a request makes. The identifiers are decoded and not yet checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// `POST /v1/message/push/{AppID}`
    Push {
        app: Cow<'a, str>,
    },
    /// `POST /v1/message/push/{AppID}/batch`
    PushBatch {
        app: Cow<'a, str>,
    },
    /// `POST /v1/audience/{AppID}`
    CountAudience {
        app: Cow<'a, str>,
    },
    /// `PUT /v1/device/{AppID}/{ClientID}`
    PutDevice(AppResource<'a>),
    GetDevice(AppResource<'a>),
    DeleteDevice(AppResource<'a>),
    /// `PATCH /v1/device/{AppID}/{ClientID}`
    PatchDevice(AppResource<'a>),
    /// `PATCH /v1/device/{AppID}`
    PatchDevices {
        app: Cow<'a, str>,
    },
    /// `GET /v1/user/{AppID}/{UserID}`
    GetUser(AppResource<'a>),
    DeleteUser(AppResource<'a>),
    /// `GET /v1/message/{AppID}`
    ListMessages {
        app: Cow<'a, str>,
    },
    /// `GET /v1/message/{AppID}/{message_id}`
    GetMessage(AppResource<'a>),
    RecallMessage(AppResource<'a>),
    /// A question of an MQTT broker, under `/v1/broker/`.
    AskedByBroker(Broker, BrokerQuestion),
    /// `GET /openapi.json`, and what is under `/openapi/`.
    Description(Document),
}

/// A document of the description of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Document {
    /// What apps call.
    Apps,
    /// What MQTT brokers ask.
    Brokers,
    /// What operations listeners answer.
    Operations,
}

/// The broker that asks; each has a form of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broker {
    Emqx,
    Rmqtt,
    Mosquitto,
}

impl Broker {
    pub(crate) const ALL: [Self; 3] = [Self::Emqx, Self::Rmqtt, Self::Mosquitto];

    /// Returns the name in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Emqx => "emqx",
            Self::Rmqtt => "rmqtt",
            Self::Mosquitto => "mosquitto",
        }
    }
}

/// A question about one of the broker's clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BrokerQuestion {
    /// May it connect?
    Connect,
    /// May it subscribe or publish?
    Access,
    /// May it do everything?
    Superuser,
}

/// A device, a user or a message of an app.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AppResource<'a> {
    pub(crate) app: Cow<'a, str>,
    pub(crate) id: Cow<'a, str>,
}

const POST_ONLY: &str = "POST";
const LIST_METHODS: &str = "GET";
const DEVICE_METHODS: &str = "GET, PUT, PATCH, DELETE";
const DEVICES_METHODS: &str = "PATCH";
const USER_METHODS: &str = "GET, DELETE";
const MESSAGE_METHODS: &str = "GET, DELETE";
const DESCRIPTION_METHODS: &str = "GET";

impl<'a> Route<'a> {
    /// The name of [`Route::Push`] in metrics.
    pub(crate) const PUSH: &'static str = "push";
    /// The name of [`Route::PushBatch`] in metrics.
    pub(crate) const PUSH_BATCH: &'static str = "push_batch";
    /// The name of a line of a batch request in metrics.
    pub(crate) const BATCH_LINE: &'static str = "push_batch_line";
    /// The name of a line of a request that changes many devices in metrics.
    pub(crate) const PATCH_LINE: &'static str = "patch_devices_line";
    /// The name of a request without a route in metrics.
    pub(crate) const NO_ROUTE: &'static str = "none";

    /// Finds the route of a request.
    pub(crate) fn of(method: &Method, path: &'a str) -> Result<Self, Rejection> {
        let Some(rest) = path.strip_prefix("/v1/") else {
            return Self::description(method, path);
        };
        let mut segments = rest.split('/');
        let (kind, first, second) = (segments.next(), segments.next(), segments.next());
        let third = segments.next();
        if segments.next().is_some() {
            return Err(Rejection::NoSuchPath);
        }
        match (kind, first, second, third) {
            (Some("broker"), Some(broker), Some(question), None) => {
                Self::asked_by_broker(broker, question)
            }
            // The path `/v1/message/push` is also the list of an app named "push".
            (Some("message"), Some(app), None, None)
                if !app.is_empty() && (app != "push" || method == Method::GET) =>
            {
                match *method {
                    Method::GET => Ok(Self::ListMessages { app: decode(app) }),
                    _ => Err(Rejection::NoSuchMethod(LIST_METHODS)),
                }
            }
            (Some("message"), Some("push"), app, None) => {
                Self::push(method, app.unwrap_or_default())
            }
            (Some("message"), Some("push"), Some(app), Some("batch")) => match *method {
                Method::POST => Ok(Self::PushBatch { app: decode(app) }),
                _ => Err(Rejection::NoSuchMethod(POST_ONLY)),
            },
            (Some("message"), Some(app), Some(id), None) => Self::message(method, app, id),
            (Some("audience"), app, None, None) => match *method {
                Method::POST => Ok(Self::CountAudience { app: decode(app.unwrap_or_default()) }),
                _ => Err(Rejection::NoSuchMethod(POST_ONLY)),
            },
            (Some("device"), Some(app), Some(id), None) => {
                let resource = AppResource { app: decode(app), id: decode(id) };
                match *method {
                    Method::PUT => Ok(Self::PutDevice(resource)),
                    Method::GET => Ok(Self::GetDevice(resource)),
                    Method::DELETE => Ok(Self::DeleteDevice(resource)),
                    Method::PATCH => Ok(Self::PatchDevice(resource)),
                    _ => Err(Rejection::NoSuchMethod(DEVICE_METHODS)),
                }
            }
            (Some("device"), Some(app), None, None) if !app.is_empty() => match *method {
                Method::PATCH => Ok(Self::PatchDevices { app: decode(app) }),
                _ => Err(Rejection::NoSuchMethod(DEVICES_METHODS)),
            },
            (Some("user"), Some(app), Some(id), None) => {
                let resource = AppResource { app: decode(app), id: decode(id) };
                match *method {
                    Method::GET => Ok(Self::GetUser(resource)),
                    Method::DELETE => Ok(Self::DeleteUser(resource)),
                    _ => Err(Rejection::NoSuchMethod(USER_METHODS)),
                }
            }
            _ => Err(Rejection::NoSuchPath),
        }
    }

    fn push(method: &Method, app: &'a str) -> Result<Self, Rejection> {
        if method == Method::POST {
            return Ok(Self::Push { app: decode(app) });
        }
        // The path `/v1/message/push/{id}` with a message id is a message of an app named "push".
        if matches!(*method, Method::GET | Method::DELETE) && app.parse::<MessageId>().is_ok() {
            return Self::message(method, "push", app);
        }
        Err(Rejection::NoSuchMethod(POST_ONLY))
    }

    fn description(method: &Method, path: &str) -> Result<Self, Rejection> {
        let document = match path {
            "/openapi.json" => Document::Apps,
            "/openapi/brokers.json" => Document::Brokers,
            "/openapi/operations.json" => Document::Operations,
            _ => return Err(Rejection::NoSuchPath),
        };
        match *method {
            Method::GET => Ok(Self::Description(document)),
            _ => Err(Rejection::NoSuchMethod(DESCRIPTION_METHODS)),
        }
    }

    /// With any method: one that cannot be answered is refused in the form of the broker.
    fn asked_by_broker(broker: &str, question: &str) -> Result<Self, Rejection> {
        use {Broker::*, BrokerQuestion::*};
        let (broker, question) = match (broker, question) {
            ("emqx", "authenticate") => (Emqx, Connect),
            ("emqx", "authorize") => (Emqx, Access),
            ("rmqtt", "auth") => (Rmqtt, Connect),
            ("rmqtt", "acl") => (Rmqtt, Access),
            ("mosquitto", "user") => (Mosquitto, Connect),
            ("mosquitto", "acl") => (Mosquitto, Access),
            ("mosquitto", "superuser") => (Mosquitto, Superuser),
            _ => return Err(Rejection::NoSuchPath),
        };
        Ok(Self::AskedByBroker(broker, question))
    }

    fn message(method: &Method, app: &'a str, id: &'a str) -> Result<Self, Rejection> {
        let resource = AppResource { app: decode(app), id: decode(id) };
        match *method {
            Method::GET => Ok(Self::GetMessage(resource)),
            Method::DELETE => Ok(Self::RecallMessage(resource)),
            _ => Err(Rejection::NoSuchMethod(MESSAGE_METHODS)),
        }
    }

    pub(crate) fn app(&self) -> Option<&str> {
        match self {
            Self::Push { app }
            | Self::PushBatch { app }
            | Self::CountAudience { app }
            | Self::PatchDevices { app }
            | Self::ListMessages { app } => Some(app),
            Self::PutDevice(of)
            | Self::GetDevice(of)
            | Self::DeleteDevice(of)
            | Self::PatchDevice(of)
            | Self::GetUser(of)
            | Self::DeleteUser(of)
            | Self::GetMessage(of)
            | Self::RecallMessage(of) => Some(&of.app),
            Self::AskedByBroker(..) | Self::Description(_) => None,
        }
    }

    /// Returns the name in metrics.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Push { .. } => Self::PUSH,
            Self::PushBatch { .. } => Self::PUSH_BATCH,
            Self::CountAudience { .. } => "count_audience",
            Self::PutDevice(_) => "put_device",
            Self::GetDevice(_) => "get_device",
            Self::DeleteDevice(_) => "delete_device",
            Self::PatchDevice(_) => "patch_device",
            Self::PatchDevices { .. } => "patch_devices",
            Self::GetUser(_) => "get_user",
            Self::DeleteUser(_) => "delete_user",
            Self::ListMessages { .. } => "list_messages",
            Self::GetMessage(_) => "get_message",
            Self::RecallMessage(_) => "recall_message",
            Self::AskedByBroker(..) => "broker",
            Self::Description(_) => "openapi",
        }
    }
}

/// Bytes that are not UTF-8 after decoding become U+FFFD, which no identifier allows.
fn decode(segment: &str) -> Cow<'_, str> {
    percent_decode_str(segment).decode_utf8_lossy()
}

#[cfg(test)]
mod tests;
