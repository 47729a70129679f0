//! A request that was served is one that the description allows, and the other way round.

use serde_json::Value;

use super::{Exchange, JSON, description::Description, effect::with_effect, parse};

const NDJSON: &str = "application/x-ndjson";
/// Words of refusals that JSON Schema cannot express: sizes in bytes, repeated keys, a locale that names
/// no language, comparisons of two fields, depth, and rules that depend on the path, on settings or on what the app
/// declares.
const BEYOND_SCHEMA: &[&str] = &[
    "bytes",
    "twice",
    "duplicate field",
    "name no language",
    "must be the one in the path",
    "malformed",
    "not readable as HTTP",
    "different devices, at most",
    "different devices and users, at most",
    "devices together, which is the most",
    "declares no attribute",
    "of this attribute have no order",
    "must be a number, like",
    "must be a version, like",
    "must be a time of",
    "levels deep",
    "at most 64 tests",
    "must be less than",
    "must be used with condition.type 1",
    "with at most two decimals",
    "is not stored:",
    "is stored as absent",
    "are left out:",
    "it is left out",
    "Idempotency-Key",
];

impl Description {
    /// Compares what the description allows with what became of the body.
    pub(super) fn check_body(
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
        let read = parse_bytes(body).map(|body| match operation["operationId"] == "push" {
            true => with_effect(body),
            false => body,
        });
        let allowed = read.and_then(|body| self.check_schema_value(&media_type["schema"], &body));
        self.compare(allowed, exchange.status, exchange.answer)
    }

    /// Does the same for each line of a batch request that was answered line by line.
    pub(super) fn check_lines(
        &self,
        operation: &Value,
        exchange: &Exchange<'_>,
        body: &[u8],
    ) -> Result<(), String> {
        if exchange.status != 200 {
            return Ok(());
        }
        if exchange.content_type.map(essence).as_deref() != Some(NDJSON) {
            return Err("a batch request of another media type was served".into());
        }
        let is_push = operation["operationId"] == "pushBatch";
        let (line_schema, answer_schema, refused) = match is_push {
            true => ("#/components/schemas/PushLine", "#/components/schemas/AnswerLine", 21005),
            false => {
                let answer = "#/components/schemas/PatchAnswerLine";
                ("#/components/schemas/DevicePatchLine", answer, 400)
            }
        };
        let lines = body.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.trim_ascii().is_empty());
        let mut answers = exchange.answer.lines();
        for line in lines {
            let answer = answers.next().ok_or("a line has no answer")?;
            let value = parse(answer)?;
            self.check_schema(answer_schema, &value)?;
            let status = if value["status"] == 200 { 200 } else { 400 };
            let allowed = parse_bytes(line)
                .map(if is_push { with_effect } else { std::convert::identity })
                .and_then(|line| self.check_schema(line_schema, &line));
            // Only a verdict about the line itself is compared.
            if status == 200 || value["status"] == refused {
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
}

/// Parses a body or a line of one, which may begin with a byte order mark.
fn parse_bytes(bytes: &[u8]) -> Result<Value, String> {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
