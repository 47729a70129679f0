//! The forms of the providers: which devices a request is for, and what an answer looks like.

use serde_json::{Value, json};

/// The provider that a server plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Face {
    /// FCM: a device is its registration token.
    Fcm,
    /// The service of FCM's access tokens: no device.
    Tokens,
    /// APNs: a device is its device token.
    Apns,
    /// A Web Push service: a device is the last part of its endpoint.
    WebPush,
    /// A webhook receiver: a device is its client id.
    Webhook,
}

impl Face {
    /// The devices of a request.
    pub(super) fn devices(self, path: &str, body: &[u8]) -> Vec<String> {
        let read = || serde_json::from_slice::<Value>(body).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match self {
            Self::Tokens => Vec::new(),
            Self::Apns | Self::WebPush => {
                vec![path.rsplit('/').next().unwrap_or_default().to_owned()]
            }
            Self::Fcm => {
                let message = &read()["message"];
                let token = message.get("token").or_else(|| message.get("fid"));
                vec![token.map(text).unwrap_or_default()]
            }
            Self::Webhook => {
                let body = read();
                let devices = body["devices"].as_array().cloned().unwrap_or_default();
                devices.iter().map(|device| text(&device["client_id"])).collect()
            }
        }
    }

    /// The status and the body of the answer to a request that is taken, the n-th of the server.
    pub(super) fn taken(self, number: u64) -> (u16, String) {
        match self {
            Self::Fcm => {
                (200, json!({"name": format!("projects/p/messages/{number}")}).to_string())
            }
            Self::Tokens => {
                let token = format!("access-token-{number}");
                let answer =
                    json!({"access_token": token, "expires_in": 3599, "token_type": "Bearer"});
                (200, answer.to_string())
            }
            Self::Apns => (200, String::new()),
            Self::WebPush => (201, String::new()),
            Self::Webhook => (200, "{}".to_owned()),
        }
    }
}

/// The body of an error of FCM with this `errorCode`.
pub fn fcm_error(status: u16, code: &str) -> String {
    let detail = json!({
        "@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code,
    });
    json!({"error": {"code": status, "message": "no", "details": [detail]}}).to_string()
}

/// The body of FCM's 400 for a field of the message.
pub fn fcm_field_error(field: &str) -> String {
    let details = json!([
        {
            "@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError",
            "errorCode": "INVALID_ARGUMENT",
        },
        {
            "@type": "type.googleapis.com/google.rpc.BadRequest",
            "fieldViolations": [{"field": field, "description": "no"}],
        },
    ]);
    let error =
        json!({"code": 400, "message": "no", "status": "INVALID_ARGUMENT", "details": details});
    json!({"error": error}).to_string()
}

/// The body of an error of APNs.
pub fn apns_error(reason: &str) -> String {
    json!({"reason": reason}).to_string()
}
