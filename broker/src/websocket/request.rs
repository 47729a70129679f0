//! The request by which a connection becomes a WebSocket, and its answer (RFC 6455, section 4.2; MQTT 5,
//! section 6).

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{
        ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, ORIGIN, SEC_WEBSOCKET_ACCEPT,
        SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, TRANSFER_ENCODING,
        UPGRADE,
    },
};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use super::origins::Origins;

/// The path of MQTT over WebSocket.
pub const WEBSOCKET_PATH: &str = "/mqtt";

/// The name of MQTT, of any version, as a subprotocol (MQTT 5, section 6).
const SUBPROTOCOL: &str = "mqtt";

/// The text that a server appends to a client's key (RFC 6455, section 1.3).
const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The bytes of a client's key.
const KEY: usize = 16;

/// The reasons for which a request makes no WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    Path,
    Method,
    HttpVersion,
    NotAnUpgrade,
    SocketVersion,
    Key,
    Body,
    Subprotocol,
    Origin,
}

/// Returns the answer to a request: 101 if the connection becomes a WebSocket.
pub(super) fn answer<B>(request: &Request<B>, origins: &Origins) -> Response<String> {
    match check(request, origins) {
        Ok(accept) => {
            let mut answer = Response::new(String::new());
            *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            let fields = answer.headers_mut();
            fields.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            fields.insert(UPGRADE, HeaderValue::from_static("websocket"));
            fields.insert(SEC_WEBSOCKET_ACCEPT, accept);
            fields.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
            answer
        }
        Err(refusal) => refusal.answer(),
    }
}

/// Returns the value of `Sec-WebSocket-Accept`.
fn check<B>(request: &Request<B>, origins: &Origins) -> Result<HeaderValue, Refusal> {
    let fields = request.headers();
    if request.uri().path() != WEBSOCKET_PATH {
        return Err(Refusal::Path);
    }
    if request.method() != Method::GET {
        return Err(Refusal::Method);
    }
    if request.version() != Version::HTTP_11 {
        return Err(Refusal::HttpVersion);
    }
    if !has_word(fields, &CONNECTION, "upgrade") || !has_word(fields, &UPGRADE, "websocket") {
        return Err(Refusal::NotAnUpgrade);
    }
    if only(fields, &SEC_WEBSOCKET_VERSION) != Some("13") {
        return Err(Refusal::SocketVersion);
    }
    let key = only(fields, &SEC_WEBSOCKET_KEY).ok_or(Refusal::Key)?;
    if !STANDARD.decode(key).is_ok_and(|key| key.len() == KEY) {
        return Err(Refusal::Key);
    }
    // Its bytes would be taken for frames.
    let has_length = fields.get(CONTENT_LENGTH).is_some_and(|length| length != "0");
    if has_length || fields.contains_key(TRANSFER_ENCODING) {
        return Err(Refusal::Body);
    }
    // Names of subprotocols are compared with their case (RFC 6455, section 4.1).
    if !words(fields, &SEC_WEBSOCKET_PROTOCOL).any(|name| name == SUBPROTOCOL) {
        return Err(Refusal::Subprotocol);
    }
    let is_foreign = fields.contains_key(ORIGIN)
        && !only(fields, &ORIGIN).is_some_and(|origin| origins.allow(origin, only(fields, &HOST)));
    if is_foreign {
        return Err(Refusal::Origin);
    }
    let accept = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{ACCEPT_SUFFIX}").as_bytes());
    HeaderValue::try_from(STANDARD.encode(accept)).map_err(|_| Refusal::Key)
}

/// Returns the value of a field that stands once.
fn only<'a>(fields: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = fields.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Returns the members of a list, which may be in several fields.
fn words<'a>(fields: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = fields.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

fn has_word(fields: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    words(fields, name).any(|word| word.eq_ignore_ascii_case(wanted))
}

impl Refusal {
    fn status(self) -> StatusCode {
        match self {
            Self::Path => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::HttpVersion => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::NotAnUpgrade | Self::SocketVersion => StatusCode::UPGRADE_REQUIRED,
            Self::Key | Self::Body | Self::Subprotocol => StatusCode::BAD_REQUEST,
            Self::Origin => StatusCode::FORBIDDEN,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Path => "MQTT over WebSocket is at /mqtt\n",
            Self::Method => "a WebSocket begins with GET\n",
            Self::HttpVersion => "a WebSocket needs HTTP/1.1\n",
            Self::NotAnUpgrade => {
                "this is MQTT over WebSocket: the request must ask for an upgrade\n"
            }
            Self::SocketVersion => "Sec-WebSocket-Version must be 13\n",
            Self::Key => "Sec-WebSocket-Key must be 16 bytes in base64\n",
            Self::Body => "the request must have no body\n",
            Self::Subprotocol => "Sec-WebSocket-Protocol must offer mqtt\n",
            Self::Origin => "pages of this origin may not connect: list it in --mqtt-ws-origins\n",
        }
    }

    fn answer(self) -> Response<String> {
        let mut answer = Response::new(self.text().to_owned());
        *answer.status_mut() = self.status();
        let fields = answer.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        match self {
            Self::Method => {
                fields.insert(ALLOW, HeaderValue::from_static("GET"));
            }
            Self::NotAnUpgrade | Self::SocketVersion => {
                fields.insert(CONNECTION, HeaderValue::from_static("upgrade, close"));
                fields.insert(UPGRADE, HeaderValue::from_static("websocket"));
                fields.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            }
            _ => {}
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &[(&str, &str)] = &[
        ("host", "push.example.com"),
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", "soap, mqtt"),
    ];

    /// Returns a request whose field `name` has this value, or is missing.
    fn request(name: &str, value: Option<&str>) -> Request<()> {
        let mut request = Request::get("/mqtt?any=query");
        for (field, usual) in REQUEST.iter().filter(|(field, _)| *field != name) {
            request = request.header(*field, *usual);
        }
        match value {
            Some(value) => request.header(name, value),
            None => request,
        }
        .body(())
        .unwrap()
    }

    fn status(request: &Request<()>) -> u16 {
        answer(request, &Origins::default()).status().as_u16()
    }

    #[test]
    fn a_request_for_mqtt_is_accepted_with_the_answer_of_the_rfc() {
        let answer = answer(&request("x", None), &Origins::default());
        assert_eq!(answer.status(), 101);
        let fields = answer.headers();
        assert_eq!(fields[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(
            (&fields[SEC_WEBSOCKET_PROTOCOL], &fields[UPGRADE]),
            (&HeaderValue::from_static("mqtt"), &HeaderValue::from_static("websocket"))
        );
    }

    #[test]
    fn each_fault_of_a_request_has_its_status() {
        let faults = [
            ("connection", None, 426),
            ("connection", Some("keep-alive"), 426),
            ("upgrade", None, 426),
            ("upgrade", Some("h2c"), 426),
            ("sec-websocket-version", None, 426),
            ("sec-websocket-version", Some("8"), 426),
            ("sec-websocket-key", None, 400),
            ("sec-websocket-key", Some("dGhlIHNhbXBsZQ=="), 400),
            ("sec-websocket-key", Some("not base64"), 400),
            ("sec-websocket-protocol", None, 400),
            ("sec-websocket-protocol", Some("mqttv3.1"), 400),
            ("sec-websocket-protocol", Some("MQTT"), 400),
            ("content-length", Some("1"), 400),
            ("content-length", Some("0"), 101),
            ("transfer-encoding", Some("chunked"), 400),
            ("origin", Some("https://evil.example"), 403),
            ("origin", Some("https://push.example.com"), 101),
        ];
        for (name, value, expected) in faults {
            assert_eq!(status(&request(name, value)), expected, "{name}: {value:?}");
        }
    }

    /// Changes a request.
    type Change = fn(&mut Request<()>);

    #[test]
    fn another_path_method_or_version_of_http_is_refused() {
        let changes: [(Change, u16); 5] = [
            (|request| *request.uri_mut() = "/".parse().unwrap(), 404),
            (|request| *request.uri_mut() = "/mqtt/".parse().unwrap(), 404),
            (|request| *request.method_mut() = Method::POST, 405),
            (|request| *request.version_mut() = Version::HTTP_10, 505),
            (|request| *request.version_mut() = Version::HTTP_2, 505),
        ];
        for (change, expected) in changes {
            let mut request = request("x", None);
            change(&mut request);
            assert_eq!(status(&request), expected, "{request:?}");
        }
    }

    #[test]
    fn a_field_that_stands_twice_is_not_guessed_at() {
        for name in ["sec-websocket-key", "sec-websocket-version", "origin"] {
            let mut request = request("origin", Some("https://push.example.com"));
            let value = request.headers()[name].clone();
            request.headers_mut().append(name, value);
            assert_ne!(status(&request), 101, "{name}");
        }
    }
}
