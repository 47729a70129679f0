//! Compares what the suites send to `ingest` and to operations listeners, and what they answer, with
//! the description of the API (`ingest/openapi.json` and `ingest/openapi/`), so that neither can change without the other.
//!
//! - An answer has a status that the description lists for the operation, its media type, its body
//!   and its headers.
//! - A method that the description does not list for a path is refused, in a form that it lists for
//!   the path.
//! - A request that was served is one that the description allows: it is not too narrow.
//! - A request that the description allows is not refused for its fields: it is not too wide. The
//!   few rules that JSON Schema cannot express are named in `request`, and what of a push has no
//!   effect, which may hold anything, in `effect`.

mod answer;
mod description;
mod effect;
mod request;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, sync::LazyLock};

use serde_json::Value;

use self::description::{Description, without_query};

const JSON: &str = "application/json";
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

/// Compares an exchange with `ingest`, or with an operations listener, with the description of the API.
#[track_caller]
pub fn check(exchange: &Exchange<'_>) {
    if let Err(contradiction) = DESCRIPTION.check(exchange) {
        panic!("the description of the API and ingest differ: {contradiction}, in {exchange:#?}");
    }
}

/// Returns true if the description has this path, with or without a query.
pub fn has_path(path: &str) -> bool {
    DESCRIPTION.path_item(without_query(path)).is_some()
}

/// Returns each answer that the description lists: the id of its operation, and its status.
pub fn listed_answers() -> BTreeSet<(String, u16)> {
    DESCRIPTION.operations().flat_map(listed_answers_of).collect()
}

fn listed_answers_of(operation: &Value) -> impl Iterator<Item = (String, u16)> {
    let id = operation["operationId"].as_str().expect("operationId");
    let responses = operation["responses"].as_object().expect("responses");
    responses.keys().map(move |status| (id.to_owned(), status.parse().expect("a status")))
}

static DESCRIPTION: LazyLock<Description> = LazyLock::new(Description::read);

fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}
