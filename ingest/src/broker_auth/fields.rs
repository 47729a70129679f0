//! The fields in which a broker describes its client: a JSON object of texts and numbers, or a form. The operator
//! configures the names in EMQX and RMQTT; those of this service are `clientid`, `username`,
//! `password`, `topic`, and the broker's own for what the client wants to do.

use std::collections::HashMap;

use serde_json::value::RawValue;

use crate::{
    head::Head,
    message::{NotWhole, whole},
};

const FORM: &[u8] = b"application/x-www-form-urlencoded";

/// The fields of a question.
pub(super) struct Fields(HashMap<String, String>);

impl Fields {
    /// Reads a body; none if it is neither an object nor a form.
    pub(super) fn read(head: &Head<'_>, body: &[u8]) -> Option<Self> {
        let media_type = head.content_type.unwrap_or_default();
        let media_type = media_type.split(|b| *b == b';').next().unwrap_or_default();
        if media_type.trim_ascii().eq_ignore_ascii_case(FORM) {
            let pairs = form_urlencoded::parse(body);
            let owned = pairs.map(|(name, value)| (name.into_owned(), value.into_owned()));
            return Some(Self(owned.collect()));
        }
        let object: HashMap<String, &RawValue> = serde_json::from_slice(body).ok()?;
        let text = |(name, value): (String, &RawValue)| match whole(value.get()) {
            Ok(number) => Some((name, number.to_string())),
            Err(NotWhole::Type(_)) => Some((name, serde_json::from_str(value.get()).ok()?)),
            Err(_) => Some((name, value.get().to_owned())),
        };
        Some(Self(object.into_iter().filter_map(text).collect()))
    }

    /// A field; empty if it is absent.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.get(name).map(String::as_str).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use http::{HeaderValue, Request, header::CONTENT_TYPE};

    use super::*;
    use crate::client::Peer;

    fn read(media_type: &'static str, body: &str) -> Option<Fields> {
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        Fields::read(&Head::of(&parts, &Peer::client(Ipv4Addr::LOCALHOST.into())), body.as_bytes())
    }

    #[test]
    fn a_question_is_json_or_a_form() {
        let json = read("application/json", r#"{"clientid":"a:d","acc":4,"x":null}"#).unwrap();
        assert_eq!((json.get("clientid"), json.get("acc"), json.get("x")), ("a:d", "4", ""));
        let json = read("application/json", r#"{"acc":4.0,"access":1e0,"x":1.5}"#).unwrap();
        assert_eq!((json.get("acc"), json.get("access"), json.get("x")), ("4", "1", "1.5"));
        let form = "application/x-www-form-urlencoded; charset=utf-8";
        let form = read(form, "clientid=a%3Ad&topic=push%2Fa%2Fd&acc=4").unwrap();
        assert_eq!((form.get("clientid"), form.get("topic")), ("a:d", "push/a/d"));
        assert_eq!((form.get("acc"), form.get("absent")), ("4", ""));
        for bad in ["", "[]", "clientid=a", "{"] {
            assert!(read("application/json", bad).is_none(), "{bad}");
        }
    }
}
