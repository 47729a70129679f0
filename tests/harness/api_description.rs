//! Holds what the suites send to `ingest` and to operations listeners, and what they answer, against
//! the description of the API (`ingest/openapi.json`), so that neither can change without the other.
//!
//! - An answer has a status that the description lists for the operation, its media type, its body
//!   and its headers.
//! - A method that the description does not list for a path is refused, in a form that it lists for
//!   the path.
//! - A request that was served is one that the description allows: it is not too narrow.
//! - A request that the description allows is not refused for its fields: it is not too wide. The
//!   few rules that JSON Schema cannot express are named in [`BEYOND_SCHEMA`].

#![allow(clippy::panic, clippy::expect_used, reason = "a test ends where the description is wrong")]

use std::{
    collections::{BTreeSet, HashMap},
    sync::LazyLock,
};

use jsonschema::Validator;
use serde_json::{Value, json};

const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";
/// Where brokers ask: whatever is wrong with their question, the answer is a refusal in their form.
const BROKERS: &str = "/v1/broker/";

/// What the refusal says of a request that JSON Schema cannot refuse: sizes in bytes, keys that come
/// twice, a locale that names no language, and what depends on the path or on settings.
const BEYOND_SCHEMA: &[&str] = &[
    "bytes",
    "twice",
    "duplicate field",
    "name no language",
    "must be the one in the path",
    "malformed",
    "not readable as HTTP",
    "different devices, at most",
    "Idempotency-Key",
];

/// A request and its answer.
#[derive(Debug, Clone, Copy)]
pub struct Exchange<'a> {
    /// The method.
    pub method: &'a str,
    /// The path as it was sent, with or without a query.
    pub path: &'a str,
    /// `Content-Type` of the request.
    pub content_type: Option<&'a str>,
    /// The body of the request, if it was sent whole.
    pub body: Option<&'a [u8]>,
    /// The status of the answer.
    pub status: u16,
    /// Its headers.
    pub headers: &'a [(String, String)],
    /// Its body.
    pub answer: &'a str,
}

/// Holds an exchange with `ingest`, or with an operations listener, against the description of the
/// API.
///
/// # Panics
/// If they contradict each other.
#[track_caller]
pub fn check(exchange: &Exchange<'_>) {
    if let Err(contradiction) = DESCRIPTION.check(exchange) {
        panic!("ingest/openapi.json and ingest differ: {contradiction}, in {exchange:#?}");
    }
}

/// Whether the description has this path, with or without a query.
pub fn has_path(path: &str) -> bool {
    DESCRIPTION.path_item(without_query(path)).is_some()
}

/// Each answer that the description lists: the id of its operation, and its status.
pub fn listed_answers() -> BTreeSet<(String, u16)> {
    DESCRIPTION.operations().flat_map(listed_answers_of).collect()
}

fn listed_answers_of(operation: &Value) -> impl Iterator<Item = (String, u16)> {
    let id = operation["operationId"].as_str().expect("operationId");
    let responses = operation["responses"].as_object().expect("responses");
    responses.keys().map(move |status| (id.to_owned(), status.parse().expect("a status")))
}

static DESCRIPTION: LazyLock<Description> = LazyLock::new(Description::read);

struct Description {
    document: Value,
    /// By JSON pointer.
    validators: HashMap<String, Validator>,
}

impl Description {
    fn read() -> Self {
        let text = include_str!("../../ingest/openapi.json");
        let document: Value = serde_json::from_str(text).expect("ingest/openapi.json is JSON");
        let names = document["components"]["schemas"].as_object().expect("schemas").keys();
        let validator = |name| {
            let pointer = format!("#/components/schemas/{name}");
            (pointer.clone(), validator(&document, &json!({ "$ref": pointer })))
        };
        let validators = names.map(validator).collect();
        Self { document, validators }
    }

    fn check(&self, exchange: &Exchange<'_>) -> Result<(), String> {
        let Some((template, item)) = self.path_item(without_query(exchange.path)) else {
            return self.check_schema("#/components/schemas/Error", &parse(exchange.answer)?);
        };
        let Some(operation) = item.get(exchange.method.to_ascii_lowercase()) else {
            return self.check_other_method(item, exchange);
        };
        self.check_answer(operation, exchange)?;
        match exchange.body {
            _ if template.starts_with(BROKERS) => Ok(()),
            Some(body) if template.ends_with("/batch") => self.check_lines(exchange, body),
            Some(body) => self.check_body(operation, exchange, body),
            None => Ok(()),
        }
    }

    /// A method that the path does not have. Its refusal is listed with each method that it has,
    /// because a description has no other place for it.
    fn check_other_method(&self, item: &Value, exchange: &Exchange<'_>) -> Result<(), String> {
        if exchange.status == 200 && !exchange.answer.contains(r#""deny""#) {
            return Err("a method that is not listed was served".into());
        }
        let operation = operations_of(item).next().ok_or("a path without operations")?;
        self.check_answer(operation, exchange)
    }

    fn operations(&self) -> impl Iterator<Item = &Value> {
        let paths = self.document["paths"].as_object().into_iter();
        paths.flat_map(|paths| paths.values()).flat_map(operations_of)
    }

    /// The path of the description that this one is an instance of.
    fn path_item(&self, path: &str) -> Option<(&String, &Value)> {
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

    fn check_answer(&self, operation: &Value, exchange: &Exchange<'_>) -> Result<(), String> {
        let status = exchange.status.to_string();
        let response = operation["responses"].get(&status).map(|found| self.resolved(found));
        let response = response.ok_or_else(|| format!("status {status} is not listed"))?;
        for (name, header) in response["headers"].as_object().into_iter().flatten() {
            let header = self.resolved(header);
            match find(exchange.headers, name) {
                None if header["required"] == true => return Err(format!("{name} is missing")),
                None => {}
                Some(value) if header["schema"]["type"] == "integer" => {
                    value.parse::<u64>().map_err(|_| format!("{name} is no number"))?;
                }
                Some(_) => {}
            }
        }
        let sent = find(exchange.headers, "content-type").unwrap_or_default();
        let content = response["content"].get(sent);
        let schema =
            &content.ok_or_else(|| format!("media type {sent:?} is not listed"))?["schema"];
        let answer = match sent {
            JSON => parse(exchange.answer)?,
            _ => exchange.answer.into(),
        };
        self.check_schema_value(schema, &answer)
    }

    /// Whether the description allows the body, and what the answer says of it.
    fn check_body(
        &self,
        operation: &Value,
        exchange: &Exchange<'_>,
        body: &[u8],
    ) -> Result<(), String> {
        let Some(content) = operation["requestBody"]["content"].as_object() else { return Ok(()) };
        let essence = exchange.content_type.map(essence).unwrap_or_default();
        let Some(media_type) = content.get(&essence) else {
            return match exchange.status {
                200 => Err(format!("a body of media type {essence:?} was served")),
                _ => Ok(()),
            };
        };
        if essence != JSON {
            return Ok(());
        }
        let allowed = parse_bytes(body)
            .and_then(|body| self.check_schema_value(&media_type["schema"], &body));
        self.compare(allowed, exchange.status, exchange.answer)
    }

    /// The same for each line of a batch request, if it was answered line by line.
    fn check_lines(&self, exchange: &Exchange<'_>, body: &[u8]) -> Result<(), String> {
        if exchange.status != 200 {
            return Ok(());
        }
        if exchange.content_type.map(essence).as_deref() != Some(NDJSON) {
            return Err("a batch request of another media type was served".into());
        }
        let lines = body.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.trim_ascii().is_empty());
        let mut answers = exchange.answer.lines();
        for line in lines {
            let answer = answers.next().ok_or("a line has no answer")?;
            let value = parse(answer)?;
            self.check_schema("#/components/schemas/AnswerLine", &value)?;
            let status = if value["status"] == 200 { 200 } else { 400 };
            let allowed = parse_bytes(line)
                .and_then(|line| self.check_schema("#/components/schemas/PushLine", &line));
            // Only what was said of the line itself is compared.
            if status == 200 || value["status"] == 21005 {
                self.compare(allowed, status, answer)?;
            }
        }
        match answers.next() {
            Some(answer) => Err(format!("an answer to no line: {answer}")),
            None => Ok(()),
        }
    }

    fn compare(
        &self,
        allowed: Result<(), String>,
        status: u16,
        answer: &str,
    ) -> Result<(), String> {
        match (allowed, status) {
            (Err(why), 200) => Err(format!("a request that is not allowed was served: {why}")),
            (Ok(()), 400) if !BEYOND_SCHEMA.iter().any(|text| answer.contains(text)) => {
                let about_the_path = answer.contains("\"status\":21002")
                    || answer.contains("the Client ID")
                    || answer.contains("message id");
                if about_the_path {
                    return Ok(());
                }
                Err("a request that is allowed was refused for its fields".into())
            }
            _ => Ok(()),
        }
    }

    fn check_schema_value(&self, schema: &Value, value: &Value) -> Result<(), String> {
        match schema["$ref"].as_str() {
            Some(pointer) => self.check_schema(pointer, value),
            None => first_error(&validator(&self.document, schema), value),
        }
    }

    fn check_schema(&self, pointer: &str, value: &Value) -> Result<(), String> {
        let validator = self.validators.get(pointer).ok_or_else(|| format!("no {pointer}"))?;
        first_error(validator, value)
    }

    fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        let pointer = value["$ref"].as_str().and_then(|pointer| pointer.strip_prefix('#'));
        pointer.and_then(|pointer| self.document.pointer(pointer)).unwrap_or(value)
    }
}

fn operations_of(item: &Value) -> impl Iterator<Item = &Value> {
    let fields = item.as_object().into_iter().flat_map(|item| item.values());
    fields.filter(|field| field.get("operationId").is_some())
}

fn without_query(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}

/// A schema together with the components that it refers to.
fn validator(document: &Value, schema: &Value) -> Validator {
    let mut schema = schema.clone();
    schema["components"] = document["components"].clone();
    let options = jsonschema::draft202012::options().should_validate_formats(true);
    options.build(&schema).unwrap_or_else(|error| panic!("ingest/openapi.json: {error}"))
}

fn first_error(validator: &Validator, value: &Value) -> Result<(), String> {
    validator.validate(value).map_err(|error| format!("{error} (at {})", error.instance_path()))
}

fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// A body, or a line of one, which may begin with a byte order mark.
fn parse_bytes(bytes: &[u8]) -> Result<Value, String> {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let mut found = headers.iter().filter(|(given, _)| given.eq_ignore_ascii_case(name));
    found.next().map(|(_, value)| value.as_str())
}

fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUSH: Exchange<'_> = Exchange {
        method: "POST",
        path: "/v1/message/push/news",
        content_type: Some(JSON),
        body: Some(br#"{"type":1,"time_to_live":60,"condition":{"type":0}}"#),
        status: 400,
        headers: &[],
        answer: r#"{"status":21005,"message":"Message illegal: type is required"}"#,
    };

    fn check(change: impl FnOnce(&mut Exchange<'_>)) -> Result<(), String> {
        let headers = [("content-type".to_owned(), JSON.to_owned())];
        let mut exchange = Exchange { headers: &headers, ..PUSH };
        change(&mut exchange);
        DESCRIPTION.check(&exchange)
    }

    /// Each body that is described: which it is, and its form and examples for one media type.
    fn described_bodies() -> impl Iterator<Item = (String, &'static Value)> {
        DESCRIPTION.operations().flat_map(|operation| {
            let responses = operation["responses"].as_object().unwrap().iter();
            let responses =
                responses.map(|(status, answer)| (status.as_str(), DESCRIPTION.resolved(answer)));
            let bodies = responses.chain([("request", &operation["requestBody"])]);
            bodies.flat_map(move |(what, body)| {
                let contents = body["content"].as_object().into_iter().flatten();
                contents.map(move |(media_type, content)| {
                    (format!("{} {what} {media_type}", operation["operationId"]), content)
                })
            })
        })
    }

    #[test]
    fn every_example_is_what_the_description_allows() {
        let mut examples = 0;
        for (what, content) in described_bodies() {
            for (name, example) in content["examples"].as_object().into_iter().flatten() {
                let value = &DESCRIPTION.resolved(example)["value"];
                let result = DESCRIPTION.check_schema_value(&content["schema"], value);
                assert_eq!(result, Ok(()), "{what}: {name}");
                examples += 1;
            }
        }
        assert!(examples > 150, "{examples}");
    }

    #[test]
    fn every_body_of_a_request_and_of_an_answer_has_an_example() {
        let has_one = |content: &Value| {
            let mut examples = content["examples"].as_object().into_iter().flatten();
            examples.any(|(_, example)| DESCRIPTION.resolved(example).get("value").is_some())
        };
        let without = described_bodies().filter(|(_, content)| !has_one(content));
        let without: Vec<String> = without.map(|(what, _)| what).collect();
        assert!(without.is_empty(), "no example: {without:#?}");
    }

    #[test]
    fn the_paths_of_the_operations_listener_are_at_its_address_and_the_others_are_not() {
        let paths = DESCRIPTION.document["paths"].as_object().unwrap();
        let elsewhere = paths.iter().filter(|(_, item)| item.get("servers").is_some());
        let elsewhere: Vec<(&str, &Value)> = elsewhere
            .map(|(path, item)| (path.as_str(), &item["servers"][0]["variables"]))
            .collect();
        let address = |variables: &Value| variables["operations"]["default"] == "127.0.0.1:9080";
        assert!(elsewhere.iter().all(|(_, variables)| address(variables)), "{elsewhere:?}");
        let names: Vec<&str> = elsewhere.into_iter().map(|(path, _)| path).collect();
        assert_eq!(names, ["/livez", "/metrics", "/readyz"]);
    }

    #[test]
    fn what_the_description_allows_must_not_be_refused_and_the_other_way_round() {
        assert!(check(|_| ()).unwrap_err().contains("refused for its fields"));
        assert_eq!(check(|push| push.body = Some(b"{}")), Ok(()));
        let served = r#"{"status":200,"message":"OK","result":{"message_id":"01890000-0000-7000-8000-00000000000a"}}"#;
        assert_eq!(check(|push| (push.status, push.answer) = (200, served)), Ok(()));
        let misspelt: &[u8] =
            br#"{"type":1,"time_to_live":60,"condition":{"type":1,"targeting":{"contry":["SG"]}}}"#;
        let wide = check(|push| {
            (push.status, push.answer, push.body) = (200, served, Some(misspelt));
        });
        assert!(wide.unwrap_err().contains("not allowed was served"));
    }

    #[test]
    fn an_answer_has_a_listed_status_its_form_and_its_headers() {
        let busy = r#"{"status":503,"message":"try again: full"}"#;
        let error = check(|push| (push.status, push.answer) = (503, busy)).unwrap_err();
        assert_eq!(error, "Retry-After is missing");
        let error = check(|push| (push.status, push.answer) = (500, busy)).unwrap_err();
        assert_eq!(error, "status 500 is not listed");
        let bare = r#"{"status":21005}"#;
        assert!(check(|push| push.answer = bare).unwrap_err().contains("message"));
        let error = check(|push| push.headers = &[]).unwrap_err();
        assert!(error.contains("media type"), "{error}");
    }

    #[test]
    fn a_method_that_is_not_listed_is_refused_in_a_form_that_the_path_has() {
        let served = r#"{"status":200,"message":"OK","result":{"message_id":"01890000-0000-7000-8000-00000000000a"}}"#;
        let error = check(|get| (get.method, get.status, get.answer) = ("GET", 200, served));
        assert!(error.unwrap_err().contains("not listed was served"));
        let refused = r#"{"status":405,"message":"this path takes POST"}"#;
        let error = check(|get| (get.method, get.status, get.answer) = ("GET", 405, refused));
        assert_eq!(error.unwrap_err(), "Allow is missing");
        let broker = |answer: &'static str| {
            let path = "/v1/broker/emqx/authenticate";
            check(|get| {
                (get.method, get.path, get.status, get.answer) = ("GET", path, 200, answer);
            })
        };
        assert_eq!(broker(r#"{"result":"deny"}"#), Ok(()));
        assert!(broker(r#"{"result":"allow"}"#).unwrap_err().contains("not listed was served"));
    }

    #[test]
    fn an_answer_of_the_operations_listener_is_held_against_its_description() {
        let readyz = |status: u16, answer: &'static str| {
            check(|get| {
                (get.method, get.path, get.status, get.answer) = ("GET", "/readyz", status, answer);
            })
        };
        let ready =
            r#"{"status":"ready","ready":true,"since":"2026-01-01T00:00:00.000Z","parts":[]}"#;
        assert_eq!(readyz(200, ready), Ok(()));
        assert_eq!(readyz(500, ready).unwrap_err(), "status 500 is not listed");
        assert!(readyz(200, r#"{"ready":true}"#).unwrap_err().contains("status"));
        assert!(has_path("/metrics?x=1") && !has_path("/elsewhere"));
        let listed = listed_answers();
        assert!(listed.contains(&("getReadiness".to_owned(), 503)), "{listed:?}");
        assert!(!listed.contains(&("getLiveness".to_owned(), 503)), "{listed:?}");
    }
}
