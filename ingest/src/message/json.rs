//! Parsing JSON so that an error names its JSON path, as in `condition.targeting.country[1]`.

use std::{fmt, marker::PhantomData};

use push_model::text::str_without_mark;
use serde::{Deserialize, Deserializer, de};
use serde_json::{error::Category, value::RawValue};

use crate::rejection::Rejection;

/// The longest description of an error, in characters. A description can contain what the caller
/// sent, which may be as long as the body.
const MAX_PROBLEM: usize = 300;

/// A JSON object. Without this, a derived struct would also take an array with its fields in order.
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visitor<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(de::value::MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(Visitor(PhantomData))
    }
}

/// An object of a push that was parsed with the body, or raw JSON that is parsed if it is used.
pub(super) trait ParsedOrRaw<T> {
    /// The object; `path` is its JSON path.
    fn parsed(self, path: &str) -> Result<T, Rejection>;
}

impl<T> ParsedOrRaw<T> for Object<T> {
    fn parsed(self, _: &str) -> Result<T, Rejection> {
        Ok(self.0)
    }
}

impl<'a, T: Deserialize<'a>> ParsedOrRaw<T> for &'a RawValue {
    fn parsed(self, path: &str) -> Result<T, Rejection> {
        read_object(self.get(), path)
    }
}

pub(super) fn illegal(problem: impl Into<String>) -> Rejection {
    Rejection::MessageIllegal(problem.into())
}

pub(super) fn required(field: &str) -> Rejection {
    illegal(format!("{field} is required"))
}

/// The body as text, without a byte order mark at its beginning.
pub(super) fn utf8(body: &[u8]) -> Result<&str, Rejection> {
    let text = std::str::from_utf8(body).map_err(|error| {
        illegal(format!("the body is not UTF-8 (at byte {})", error.valid_up_to()))
    })?;
    Ok(str_without_mark(text))
}

/// Parses an object of a push; `path` is its JSON path, empty for the whole body.
pub(super) fn read_object<'a, T: Deserialize<'a>>(
    json: &'a str,
    path: &str,
) -> Result<T, Rejection> {
    if !json.trim_ascii_start().starts_with('{') {
        let what = if path.is_empty() { "the body" } else { path };
        return Err(illegal(format!("{what} must be a JSON object")));
    }
    read_value(json, path)
}

/// Parses any value of a push; `path` is its JSON path.
pub(super) fn read_value<'a, T: Deserialize<'a>>(
    json: &'a str,
    path: &str,
) -> Result<T, Rejection> {
    serde_json::from_str(json).map_err(|error| illegal(describe::<T>(json, path, &error)))
}

/// Parses the body of a request that is not a push; it must be an object.
///
/// # Errors
/// The problem and its JSON path.
pub(crate) fn read_json_body<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    let json = std::str::from_utf8(body).map_err(|_| "the body is not UTF-8".to_owned())?;
    let json = str_without_mark(json);
    if !json.trim_ascii_start().starts_with('{') {
        return Err("the body must be a JSON object".to_owned());
    }
    serde_json::from_str(json).map_err(|error| describe::<T>(json, "", &error))
}

/// Describes an error with its JSON path: parses once more, this time keeping track of the path.
/// `base` is the path of `json` itself.
fn describe<'a, T: Deserialize<'a>>(
    json: &'a str,
    base: &str,
    error: &serde_json::Error,
) -> String {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let inner = match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
        Err(error) => error.path().to_string(),
        // The value itself is valid: something comes after it.
        Ok(_) => ".".to_owned(),
    };
    let path = match (base, inner.as_str()) {
        (base, ".") => base.to_owned(),
        ("", inner) => inner.to_owned(),
        (base, inner) if inner.starts_with('[') => format!("{base}{inner}"),
        (base, inner) => format!("{base}.{inner}"),
    };
    let problem = match error.classify() {
        Category::Data => {
            let text = error.to_string();
            let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
            let phrase = text.starts_with("must ") || text.starts_with("has ");
            match (path.as_str(), phrase) {
                ("", _) => text.to_owned(),
                (path, true) => format!("{path} {text}"),
                (path, false) => format!("{path}: {text}"),
            }
        }
        Category::Syntax | Category::Eof | Category::Io if path.is_empty() => {
            format!("the body is not valid JSON: {error}")
        }
        Category::Syntax | Category::Eof | Category::Io => {
            format!("the body is not valid JSON: {error}, in {path}")
        }
    };
    match problem.char_indices().nth(MAX_PROBLEM) {
        Some((end, _)) => format!("{}…", &problem[..end]),
        None => problem,
    }
}
