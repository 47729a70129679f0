//! An answer has a listed status, and the headers, the media type and the body that go with it.

use serde_json::Value;

use super::{
    Exchange, JSON,
    description::{Description, operations_of},
    parse,
};

impl Description {
    pub(super) fn check_answer(
        &self,
        operation: &Value,
        exchange: &Exchange<'_>,
    ) -> Result<(), String> {
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

    /// Checks the answer to a method that the path does not have. Its refusal is listed with each method
    /// of the path, because a description has no other place for it.
    pub(super) fn check_other_method(
        &self,
        item: &Value,
        exchange: &Exchange<'_>,
    ) -> Result<(), String> {
        if exchange.status == 200 && !exchange.answer.contains(r#""deny""#) {
            return Err("a method that is not listed was served".into());
        }
        let operation = operations_of(item).next().ok_or("a path without operations")?;
        self.check_answer(operation, exchange)
    }
}

fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let mut found = headers.iter().filter(|(given, _)| given.eq_ignore_ascii_case(name));
    found.next().map(|(_, value)| value.as_str())
}
