//! Every row of the table of request fields, as a valid push with one thing changed.

mod audience;
mod body;
mod content;
mod filter;
mod fuzz;
mod hints;
mod localized;
mod notes;

use std::sync::LazyLock;

use push_model::custom::ValueType;
use serde_json::{Value, json};

use super::*;

/// Of an app that declares an attribute of each type.
fn rules() -> AppRules<'static> {
    static DECLARED: LazyLock<Declarations> = LazyLock::new(|| {
        let mut declared = Declarations::default();
        for value_type in ValueType::ALL {
            declared.add(format!("a-{}", value_type.name()).parse().unwrap(), value_type).unwrap();
        }
        declared
    });
    AppRules { limits: Rules { max_client_ids: 3 }, attributes: &DECLARED }
}

/// The push borrows from its body, which is therefore leaked.
fn read(body: &Value) -> Result<Push<'static>, Rejection> {
    read_text(body.to_string().leak())
}

/// Reads a body in each of the three ways, which must agree: in one pass, only the fields that are
/// used, and as a line of a batch request.
fn read_text(body: &str) -> Result<Push<'_>, Rejection> {
    let push = Push::read(body.as_bytes(), rules());
    let unmarked = body.strip_prefix('\u{feff}').unwrap_or(body);
    assert_eq!(push, Push::read_used_fields(unmarked, rules()), "{body}");
    let line = Push::read_line(body.as_bytes(), rules());
    assert_eq!(push, line.map(|(push, _)| push), "{body}");
    push
}

/// A valid push of type 1 to all devices.
fn valid() -> Value {
    json!({"type": 1, "time_to_live": 60, "condition": {"type": 0}})
}

/// The valid push with the value at one JSON path (`a.b.c`) changed.
fn with(path: &str, value: Value) -> Value {
    let mut body = valid();
    let mut field = &mut body;
    for name in path.split('.') {
        if !field[name].is_object() && !field.is_object() {
            *field = json!({});
        }
        field = &mut field[name];
    }
    *field = value;
    body
}

fn problem(outcome: Result<Push<'_>, Rejection>) -> String {
    match outcome {
        Err(Rejection::MessageIllegal(problem)) => problem,
        other => panic!("21005 expected, not {other:?}"),
    }
}
