//! The request bodies of pushes.

use serde_json::{Value, json};

/// An ordinary push: a notification to one device, 290 bytes.
pub(crate) fn ordinary_push(client_id: &str) -> Value {
    push_to(&[client_id.to_owned()])
}

/// The same notification to all of these devices.
pub(crate) fn push_to(client_ids: &[String]) -> Value {
    json!({
        "type": 1,
        "time_to_live": 3600,
        "condition": { "type": 2, "client_ids": client_ids },
        "notification": {
            "title": "Your order is on its way",
            "desc": "It left the warehouse at 10:24 and will be with you this afternoon.",
            "open_type": 2,
            "open_content": "https://shop.example/orders/20317",
        },
    })
}

/// A push to all devices of the app.
pub(crate) fn broadcast() -> Value {
    json!({
        "type": 1,
        "time_to_live": 3600,
        "condition": { "type": 0 },
        "notification": { "title": "News", "desc": "There is a new version." },
    })
}
