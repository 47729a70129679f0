//! What a caller gives: paths, queries and bodies. What cannot be read is refused in the envelope, with the name of
//! the field.

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use bytes::Bytes;
use http::{HeaderValue, header::CONTENT_TYPE, request::Parts};
use push_operator::page::PageQuery;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};

use crate::access::{Caller, Refused};

/// The entries of a page unless the caller says how many.
const DEFAULT_LIMIT: usize = 50;
/// The most entries of a page.
const MAX_LIMIT: usize = 200;
/// The media type of bodies.
const JSON: &[u8] = b"application/json";

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        // Every route is guarded.
        parts.extensions.get::<Self>().cloned().ok_or(Refused::NoKey)
    }
}

/// The parameters of a path.
#[derive(Debug)]
pub(crate) struct Named<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(named)| Self(named)).map_err(|wrong| Refused::Invalid(wrong.body_text()))
    }
}

/// The query of a URL.
#[derive(Debug)]
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(asked)| Self(asked)).map_err(|wrong| Refused::Invalid(wrong.body_text()))
    }
}

/// The JSON of a body.
#[derive(Debug)]
pub(crate) struct Given<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Given<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refused> {
        let JsonText(text) = JsonText::from_request(request, state).await?;
        parse(&text).map(Self)
    }
}

/// A body that is JSON by its media type, not read yet.
#[derive(Debug)]
pub(crate) struct JsonText(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for JsonText {
    type Rejection = Refused;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refused> {
        let media_type = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let bare = media_type.and_then(|value| value.split(|byte| *byte == b';').next());
        if !bare.is_some_and(|bare| bare.trim_ascii().eq_ignore_ascii_case(JSON)) {
            return Err(Refused::MediaType);
        }
        // It was read already, within its bounds.
        Bytes::from_request(request, state).await.map(Self).map_err(|_| Refused::BodyCut)
    }
}

/// Reads the JSON of a body.
///
/// # Errors
/// If it is not what is expected; the text names the field.
pub(crate) fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, Refused> {
    let json = &mut serde_json::Deserializer::from_slice(text);
    let given = serde_path_to_error::deserialize(&mut *json).map_err(|wrong| {
        let (path, error) = (wrong.path().to_string(), wrong.into_inner());
        match path.as_str() {
            "." | "?" => Refused::Invalid(format!("the body: {error}")),
            _ => Refused::Invalid(format!("{path}: {error}")),
        }
    })?;
    json.end().map_err(|error| Refused::Invalid(format!("the body: {error}")))?;
    Ok(given)
}

/// The page of a list that a caller asks for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageParams {
    pub(crate) limit: Option<usize>,
    pub(crate) cursor: Option<String>,
}

impl PageParams {
    /// The most entries.
    ///
    /// # Errors
    /// If the caller asks for none, or for too many.
    pub(crate) fn limit(&self) -> Result<usize, Refused> {
        limit(self.limit)
    }

    /// The cursor of the page before.
    pub(crate) fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// The page of a list of the installation.
    ///
    /// # Errors
    /// If the caller asks for no entry, or for too many.
    pub(crate) fn of<'a>(&'a self, caller: &'a Caller) -> Result<PageQuery<'a>, Refused> {
        Ok(PageQuery { limit: self.limit()?, cursor: self.cursor(), key: caller.digest() })
    }
}

/// Checks how many entries a caller asks for.
fn limit(asked: Option<usize>) -> Result<usize, Refused> {
    let limit = asked.unwrap_or(DEFAULT_LIMIT);
    let wrong = || Refused::Invalid(format!("limit must be from 1 to {MAX_LIMIT}"));
    (1..=MAX_LIMIT).contains(&limit).then_some(limit).ok_or_else(wrong)
}

/// Reads a field that may be `null`: absent is none, `null` is `Some(None)`.
pub(crate) fn nullable<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Body {
        name: String,
        #[serde(default, deserialize_with = "nullable")]
        most: Option<Option<u32>>,
    }

    fn refused(text: &str) -> String {
        parse::<Body>(text.as_bytes()).unwrap_err().message()
    }

    #[test]
    fn a_field_that_is_wrong_is_named() {
        assert!(refused(r#"{"name":1}"#).starts_with("name: "));
        assert!(refused(r#"{"name":"a","most":-1}"#).starts_with("most: "));
        assert!(refused(r#"{"name":"a","mots":1}"#).contains("unknown field `mots`"));
        for wrong in ["", "{", "[]", r#"{"name":"a"} x"#] {
            assert!(refused(wrong).starts_with("the body: "), "{wrong}");
        }
    }

    #[test]
    fn null_is_told_from_absent() {
        let most = |text: &str| {
            let body = parse::<Body>(text.as_bytes()).unwrap();
            assert_eq!(body.name, "a");
            body.most
        };
        assert_eq!(most(r#"{"name":"a"}"#), None);
        assert_eq!(most(r#"{"name":"a","most":null}"#), Some(None));
        assert_eq!(most(r#"{"name":"a","most":4}"#), Some(Some(4)));
    }

    #[test]
    fn a_page_has_an_entry_at_least_and_not_too_many() {
        assert_eq!(limit(None).ok(), Some(DEFAULT_LIMIT));
        assert_eq!(limit(Some(MAX_LIMIT)).ok(), Some(MAX_LIMIT));
        for wrong in [0, MAX_LIMIT + 1, usize::MAX] {
            assert!(limit(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
