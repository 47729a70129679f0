//! Reading the values of the server's answers. Byte strings are moved out of an answer, not copied.

use redis::Value;

use crate::IndexError;

/// A byte string; none if the key or field does not exist.
pub fn bytes(value: Value) -> Result<Option<Vec<u8>>, IndexError> {
    match value {
        Value::BulkString(bytes) => Ok(Some(bytes)),
        Value::SimpleString(text) => Ok(Some(text.into_bytes())),
        Value::Nil => Ok(None),
        other => Err(unexpected(&other)),
    }
}

/// A text.
pub fn text(value: Value) -> Result<String, IndexError> {
    match value {
        Value::Okay => Ok("OK".to_owned()),
        Value::VerbatimString { text, .. } => Ok(text),
        other => {
            let bytes = bytes(other)?.unwrap_or_default();
            String::from_utf8(bytes).map_err(|_| IndexError::Corrupt("a text".to_owned()))
        }
    }
}

/// A list; empty if the key does not exist.
pub fn list(value: Value) -> Result<Vec<Value>, IndexError> {
    match value {
        Value::Array(values) => Ok(values),
        Value::Map(pairs) => Ok(pairs.into_iter().flat_map(|(k, v)| [k, v]).collect()),
        Value::Nil => Ok(Vec::new()),
        other => Err(unexpected(&other)),
    }
}

/// The fields and values of a hash, as text.
pub fn fields(value: Value) -> Result<Vec<(String, String)>, IndexError> {
    let mut fields = Vec::new();
    let mut rest = list(value)?.into_iter();
    while let (Some(field), Some(value)) = (rest.next(), rest.next()) {
        fields.push((text(field)?, text(value)?));
    }
    Ok(fields)
}

/// A whole number, which a hash stores as text; none if the key or field does not exist.
pub fn number(value: Value) -> Result<Option<u64>, IndexError> {
    match value {
        Value::Nil => Ok(None),
        Value::Int(number) => u64::try_from(number).map(Some).map_err(|_| wrong_number()),
        other => text(other)?.parse().map(Some).map_err(|_| wrong_number()),
    }
}

fn wrong_number() -> IndexError {
    IndexError::Corrupt("a number".to_owned())
}

fn unexpected(value: &Value) -> IndexError {
    let kind = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) => "a string",
        Value::Array(_) | Value::Map(_) | Value::Set(_) => "a collection",
        _ => "something else",
    };
    IndexError::Corrupt(format!("an answer that is {kind}"))
}
