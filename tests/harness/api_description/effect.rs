//! What of a push is read. Three fields named `type` decide that, and the description gives a type to
//! each field all the same, because generators of clients do not understand more. So a push is compared
//! with it without what has no effect: that may hold anything.

use serde_json::{Map, Value};

/// Returns a push, or a line of a batch request, without the fields that have no effect.
pub(super) fn with_effect(mut push: Value) -> Value {
    let Some(fields) = push.as_object_mut() else { return push };
    match number(fields, "type") {
        Some(1) => drop_fields(fields, &["data"]),
        Some(2) => drop_fields(fields, &["notification"]),
        _ => {}
    }
    if let Some(condition) = fields.get_mut("condition").and_then(Value::as_object_mut) {
        match number(condition, "type") {
            Some(0) => drop_fields(condition, &["targeting", "client_ids", "user_ids"]),
            Some(1) => drop_fields(condition, &["client_ids", "user_ids"]),
            Some(2) => drop_fields(condition, &["targeting"]),
            _ => {}
        }
    }
    if let Some(notification) = fields.get_mut("notification").and_then(Value::as_object_mut) {
        match number(notification, "notification_type").unwrap_or(1) {
            1 => drop_fields(notification, &["icon", "button_text"]),
            3 => drop_fields(notification, &["small_icon", "small_icon_color"]),
            _ => {}
        }
    }
    push
}

/// Returns a whole number, which may be written as 1.0.
fn number(fields: &Map<String, Value>, name: &str) -> Option<u64> {
    let number = fields.get(name)?.as_f64()?;
    (0..=3).find(|whole| *whole as f64 == number)
}

fn drop_fields(fields: &mut Map<String, Value>, names: &[&str]) {
    fields.retain(|name, _| !names.contains(&name.as_str()));
}
