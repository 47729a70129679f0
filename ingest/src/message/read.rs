//! Reading JSON so that a mistake is named by its place.

use std::{fmt, marker::PhantomData};

use serde::{Deserialize, Deserializer, de};
use serde_json::{error::Category, value::RawValue};

use super::illegal;
use crate::rejection::Rejection;

/// The longest description of a mistake, in characters: what a caller sent is not sent back
/// whole.
const MAX_PROBLEM: usize = 300;

/// A whole number; what is too large for it is no number of anything here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Whole(pub(super) u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from 0 to {}", u64::MAX)
            }

            fn visit_u64<E>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number))
            }
        }

        deserializer.deserialize_u64(Visitor)
    }
}

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

/// A part of a push that was read with it, or is JSON to be read if it is used.
pub(super) trait Part<T> {
    /// What it is; `at` is its place.
    fn read(self, at: &str) -> Result<T, Rejection>;
}

impl<T> Part<T> for Object<T> {
    fn read(self, _: &str) -> Result<T, Rejection> {
        Ok(self.0)
    }
}

impl<'a, T: Deserialize<'a>> Part<T> for &'a RawValue {
    fn read(self, at: &str) -> Result<T, Rejection> {
        read(self.get(), at)
    }
}

/// The body as text.
pub(super) fn utf8(body: &[u8]) -> Result<&str, Rejection> {
    std::str::from_utf8(body).map_err(|error| {
        illegal(format!("the body is not UTF-8 (at byte {})", error.valid_up_to()))
    })
}

/// Reads an object of a push; `at` is its place, empty for the whole body.
pub(super) fn read<'a, T: Deserialize<'a>>(json: &'a str, at: &str) -> Result<T, Rejection> {
    if !json.trim_ascii_start().starts_with('{') {
        let what = if at.is_empty() { "the body" } else { at };
        return Err(illegal(format!("{what} must be a JSON object")));
    }
    read_value(json, at)
}

/// Reads any value of a push; `at` is its place.
pub(super) fn read_value<'a, T: Deserialize<'a>>(json: &'a str, at: &str) -> Result<T, Rejection> {
    serde_json::from_str(json).map_err(|error| illegal(describe::<T>(json, at, &error)))
}

/// Reads the object that another call's body is.
///
/// # Errors
/// The mistake and its place.
pub(crate) fn read_fields<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    let json = std::str::from_utf8(body).map_err(|_| "the body is not UTF-8".to_owned())?;
    if !json.trim_ascii_start().starts_with('{') {
        return Err("the body must be a JSON object".to_owned());
    }
    serde_json::from_str(json).map_err(|error| describe::<T>(json, "", &error))
}

/// Reads once more, this time keeping track of the place.
fn describe<'a, T: Deserialize<'a>>(json: &'a str, at: &str, error: &serde_json::Error) -> String {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let path = match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
        Err(error) => error.path().to_string(),
        // What was read is fine: the mistake comes after it.
        Ok(_) => ".".to_owned(),
    };
    let place = match (at, path.as_str()) {
        (at, ".") => at.to_owned(),
        ("", path) => path.to_owned(),
        (at, path) if path.starts_with('[') => format!("{at}{path}"),
        (at, path) => format!("{at}.{path}"),
    };
    let problem = match error.classify() {
        Category::Data => {
            let text = error.to_string();
            let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
            let phrase = text.starts_with("must ") || text.starts_with("has ");
            match (place.as_str(), phrase) {
                ("", _) => text.to_owned(),
                (place, true) => format!("{place} {text}"),
                (place, false) => format!("{place}: {text}"),
            }
        }
        Category::Syntax | Category::Eof | Category::Io if place.is_empty() => {
            format!("the body is not valid JSON: {error}")
        }
        Category::Syntax | Category::Eof | Category::Io => {
            format!("the body is not valid JSON: {error}, in {place}")
        }
    };
    match problem.char_indices().nth(MAX_PROBLEM) {
        Some((end, _)) => format!("{}…", &problem[..end]),
        None => problem,
    }
}
