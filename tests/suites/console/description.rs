//! Holds answers against the description of the admin API.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::support::Answer;

static DESCRIPTION: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../console/openapi.json")).unwrap());

/// An operation that needs a key.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) method: String,
    /// With parameters in braces.
    pub(crate) path: &'static str,
    pub(crate) role: &'static str,
}

/// All operations that need a key.
pub(crate) fn operations() -> Vec<Operation> {
    let mut all = Vec::new();
    for (path, item) in DESCRIPTION["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if let Some(role) = operation["x-role"].as_str() {
                all.push(Operation { method: method.to_uppercase(), path, role });
            }
        }
    }
    all
}

/// Returns the operation of a call.
fn operation(method: &str, path: &str) -> Option<&'static Value> {
    let path = path.split('?').next().unwrap();
    let matches = |template: &str| {
        let (wanted, given) = (template.split('/'), path.split('/'));
        wanted.clone().count() == given.clone().count()
            && wanted.zip(given).all(|(name, value)| name.starts_with('{') || name == value)
    };
    let paths = DESCRIPTION["paths"].as_object().unwrap();
    let found = paths.iter().filter(|(template, _)| matches(template));
    let (_, item) = found.min_by_key(|(template, _)| template.matches('{').count())?;
    item.get(method.to_lowercase())
}

fn resolved(value: &'static Value) -> &'static Value {
    match value["$ref"].as_str() {
        Some(pointer) => DESCRIPTION.pointer(&pointer[1..]).unwrap(),
        None => value,
    }
}

/// Checks that the description allows an answer.
pub(crate) fn check(method: &str, path: &str, answer: &Answer) {
    assert_eq!(answer.header("content-type"), Some("application/json"), "{answer:?}");
    let schema = match operation(method, path) {
        Some(operation) => {
            let response = &operation["responses"][answer.status.to_string()];
            assert!(!response.is_null(), "{method} {path} is answered {answer:?}");
            resolved(response)["content"]["application/json"]["schema"].clone()
        }
        None => json!({"$ref": "#/components/schemas/Error"}),
    };
    let mut schema = schema;
    schema["components"] = DESCRIPTION["components"].clone();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    if let Err(error) = validator.validate(&answer.body) {
        panic!("{method} {path}: {error} (at {}): {}", error.instance_path(), answer.body);
    }
}
