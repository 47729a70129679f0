//! What a caller gives: paths, queries and bodies. What cannot be read is refused in the envelope, with the name of
//! the field.

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use bytes::Bytes;
use http::{header::CONTENT_TYPE, request::Parts};
use push_operator::page::PageQuery;
use serde::{Deserialize, de::DeserializeOwned};

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
        let media_type = request.headers().get(CONTENT_TYPE).map(|value| value.as_bytes());
        let bare = media_type.and_then(|value| value.split(|byte| *byte == b';').next());
        if !bare.is_some_and(|bare| bare.trim_ascii().eq_ignore_ascii_case(JSON)) {
            return Err(Refused::MediaType);
        }
        // It was read already, within its bounds.
        let body = Bytes::from_request(request, state).await.map_err(|_| Refused::BodyCut)?;
        let json = &mut serde_json::Deserializer::from_slice(&body);
        let given = serde_path_to_error::deserialize(&mut *json).map_err(|wrong| {
            let (path, error) = (wrong.path().to_string(), wrong.into_inner());
            match path.as_str() {
                "." => Refused::Invalid(format!("the body: {error}")),
                _ => Refused::Invalid(format!("{path}: {error}")),
            }
        })?;
        json.end().map_err(|error| Refused::Invalid(format!("the body: {error}")))?;
        Ok(Self(given))
    }
}

/// The page of a list that a caller asks for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageParams {
    limit: Option<usize>,
    cursor: Option<String>,
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
