//! Parsing JSON so that an error names its JSON path, as in `condition.targeting.country[1]`.

use std::{fmt, marker::PhantomData};

use push_model::text::str_without_mark;
use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, MapAccess},
    forward_to_deserialize_any,
};
use serde_json::{error::Category, value::RawValue};

use crate::rejection::Rejection;

/// The longest description of an error, in characters. A description can contain what the caller
/// sent, which may be as long as the body.
const MAX_PROBLEM: usize = 300;

/// The fields that a struct has, if its JSON object has others too.
pub(super) type KnownFields = Option<&'static [&'static str]>;

/// A JSON object. Without this, a derived struct would also take an array with its fields in order.
pub(super) struct Object<T>(pub(super) T, pub(super) KnownFields);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visitor<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                let mut others = None;
                let value = T::deserialize(Fields { map, others: &mut others })?;
                Ok(Object(value, others))
            }
        }

        deserializer.deserialize_map(Visitor(PhantomData))
    }
}

/// Deserializes from a map. If that is a struct, and the map has other fields too, `others` gets the fields of the
/// struct. The names of the others are not kept: a second look at the JSON finds them, in the few objects
/// that have any.
struct Fields<'f, A> {
    map: A,
    others: &'f mut KnownFields,
}

impl<'de, A: MapAccess<'de>> Deserializer<'de> for Fields<'_, A> {
    type Error = A::Error;

    fn deserialize_any<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, A::Error> {
        visitor.visit_map(self.map)
    }

    fn deserialize_struct<V: de::Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        visitor.visit_map(WatchedMap { map: self.map, known, others: self.others })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// A map whose values of unknown fields are noticed.
struct WatchedMap<'f, A> {
    map: A,
    known: &'static [&'static str],
    others: &'f mut KnownFields,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for WatchedMap<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.map.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        // A derived struct reads the value of an unknown field as `IgnoredAny`, which has no size.
        if size_of::<S::Value>() == 0 {
            *self.others = Some(self.known);
        }
        self.map.next_value_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.map.size_hint()
    }
}

/// An object of a push that was parsed with the body, or raw JSON that is parsed if it is used.
pub(super) trait ParsedOrRaw<T> {
    /// The object; `path` is its JSON path.
    fn parsed(self, path: &str) -> Result<Object<T>, Rejection>;
}

impl<T> ParsedOrRaw<T> for Object<T> {
    fn parsed(self, _: &str) -> Result<Object<T>, Rejection> {
        Ok(self)
    }
}

impl<'a, T: Deserialize<'a>> ParsedOrRaw<T> for &'a RawValue {
    fn parsed(self, path: &str) -> Result<Object<T>, Rejection> {
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
) -> Result<Object<T>, Rejection> {
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

/// Describes an error of the JSON itself. In JSON of one line, as each push of a batch is, the number of the
/// line would be mistaken for that of the line in the batch.
fn place(json: &str, error: &serde_json::Error) -> String {
    let text = error.to_string();
    match json.trim_ascii_end().contains('\n') {
        true => text,
        false => text.replace(" at line 1 column ", " at character "),
    }
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
    // A place between two fields has no name.
    let inner = match inner.strip_suffix('?') {
        Some("") => ".",
        Some(before) => before.strip_suffix('.').unwrap_or(&inner),
        None => &inner,
    };
    let path = match (base, inner) {
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
            format!("the body is not valid JSON: {}", place(json, error))
        }
        Category::Syntax | Category::Eof | Category::Io => {
            format!("the body is not valid JSON: {}, in {path}", place(json, error))
        }
    };
    match problem.char_indices().nth(MAX_PROBLEM) {
        Some((end, _)) => format!("{}…", &problem[..end]),
        None => problem,
    }
}
