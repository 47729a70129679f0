//! The description: its documents, their paths, their operations and their schemas.

use std::collections::HashMap;

use jsonschema::Validator;
use serde_json::{Value, json};

use super::{Exchange, parse};

/// Each document, by its file below `ingest/`.
pub(super) const DOCUMENTS: [(&str, &str); 3] = [
    ("openapi.json", include_str!("../../../ingest/openapi.json")),
    ("openapi/brokers.json", include_str!("../../../ingest/openapi/brokers.json")),
    ("openapi/operations.json", include_str!("../../../ingest/openapi/operations.json")),
];

/// Where brokers ask: whatever is wrong with their question, the answer is a refusal in their form.
const BROKERS: &str = "/v1/broker/";

pub(super) struct Description {
    /// All documents as one.
    document: Value,
    /// By JSON pointer.
    validators: HashMap<String, Validator>,
}

impl Description {
    pub(super) fn read() -> Self {
        let mut document = json!({});
        for (file, text) in DOCUMENTS {
            let other: Value =
                serde_json::from_str(text).unwrap_or_else(|error| panic!("{file}: {error}"));
            add(&mut document, "paths", &other["paths"]);
            for (section, members) in other["components"].as_object().expect("components") {
                add(&mut document["components"], section, members);
            }
        }
        let names = document["components"]["schemas"].as_object().expect("schemas").keys();
        let validator = |name| {
            let pointer = format!("#/components/schemas/{name}");
            (pointer.clone(), validator(&document, &json!({ "$ref": pointer })))
        };
        let validators = names.map(validator).collect();
        Self { document, validators }
    }

    pub(super) fn check(&self, exchange: &Exchange<'_>) -> Result<(), String> {
        let Some((template, item)) = self.path_item(without_query(exchange.path)) else {
            return self.check_schema("#/components/schemas/Error", &parse(exchange.answer)?);
        };
        let Some(operation) = item.get(exchange.method.to_ascii_lowercase()) else {
            return self.check_other_method(item, exchange);
        };
        self.check_answer(operation, exchange)?;
        match exchange.body {
            _ if template.starts_with(BROKERS) => Ok(()),
            Some(body) if is_lines(operation) => self.check_lines(operation, exchange, body),
            Some(body) => self.check_body(operation, exchange, body),
            None => Ok(()),
        }
    }

    pub(super) fn operations(&self) -> impl Iterator<Item = &Value> {
        let paths = self.document["paths"].as_object().into_iter();
        paths.flat_map(|paths| paths.values()).flat_map(operations_of)
    }

    /// Returns the path of the description that this one is an instance of.
    pub(super) fn path_item(&self, path: &str) -> Option<(&String, &Value)> {
        let paths = self.document["paths"].as_object()?;
        let matches = |template: &str| {
            let (mut template, mut path) = (template.split('/'), path.split('/'));
            loop {
                match (template.next(), path.next()) {
                    (None, None) => return true,
                    (Some(name), Some(value)) if name.starts_with('{') => {
                        if value.is_empty() {
                            return false;
                        }
                    }
                    (Some(name), Some(value)) if name == value => {}
                    _ => return false,
                }
            }
        };
        // A path without parameters, or with fewer of them, comes first (OpenAPI, "Path Templating").
        let parameters = |template: &str| template.matches('{').count();
        paths.iter().filter(|(template, _)| matches(template)).min_by_key(|(t, _)| parameters(t))
    }

    pub(super) fn check_schema_value(&self, schema: &Value, value: &Value) -> Result<(), String> {
        match schema["$ref"].as_str() {
            Some(pointer) => self.check_schema(pointer, value),
            None => first_error(&validator(&self.document, schema), value),
        }
    }

    pub(super) fn check_schema(&self, pointer: &str, value: &Value) -> Result<(), String> {
        let validator = self.validators.get(pointer).ok_or_else(|| format!("no {pointer}"))?;
        first_error(validator, value)
    }

    pub(super) fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        let pointer = value["$ref"].as_str().and_then(|pointer| pointer.strip_prefix('#'));
        pointer.and_then(|pointer| self.document.pointer(pointer)).unwrap_or(value)
    }
}

pub(super) fn operations_of(item: &Value) -> impl Iterator<Item = &Value> {
    let fields = item.as_object().into_iter().flat_map(|item| item.values());
    fields.filter(|field| field.get("operationId").is_some())
}

pub(super) fn without_query(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}

/// Adds the members of an object to those of a field. A name that several documents have means the same
/// in each: a document refers to no other, because few generators read more than one.
fn add(to: &mut Value, field: &str, members: &Value) {
    for (name, member) in members.as_object().expect("an object") {
        let known = &mut to[field][name];
        assert!(known.is_null() || known == member, "{field}/{name} differs between documents");
        *known = member.clone();
    }
}

/// A schema together with the components that it refers to.
fn validator(document: &Value, schema: &Value) -> Validator {
    let mut schema = schema.clone();
    schema["components"] = document["components"].clone();
    let options = jsonschema::draft202012::options().should_validate_formats(true);
    options.build(&schema).unwrap_or_else(|error| panic!("a schema of the description: {error}"))
}

fn first_error(validator: &Validator, value: &Value) -> Result<(), String> {
    validator.validate(value).map_err(|error| format!("{error} (at {})", error.instance_path()))
}

/// Returns true if the body of an operation has one request a line.
fn is_lines(operation: &Value) -> bool {
    !operation["requestBody"]["content"]["application/x-ndjson"].is_null()
}
