//! The answer of a program's `/readyz`.

use std::io;

use serde_json::Value;

use crate::service::{Program, request};

/// An answer of `/readyz`.
#[derive(Debug)]
pub struct Readiness {
    /// The status of HTTP: 200 or 503.
    pub code: u16,
    /// The answer.
    pub report: Value,
}

impl Readiness {
    /// Asks the program whose operations listener is at this address.
    pub async fn of(operations: &str) -> io::Result<Self> {
        let (code, text) = request("GET", &format!("http://{operations}/readyz"), &[], "").await?;
        let report = serde_json::from_str(&text)
            .map_err(|error| io::Error::other(format!("{error}: {text}")))?;
        Ok(Self { code, report })
    }

    /// `ready`, `degraded`, `starting`, `not_ready` or `draining`.
    pub fn status(&self) -> &str {
        self.report["status"].as_str().unwrap_or_default()
    }

    /// One of its parts; null if it has none of this name.
    pub fn part(&self, name: &str) -> &Value {
        let parts = self.report["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
        parts.iter().find(|part| part["name"] == name).unwrap_or(&Value::Null)
    }

    /// Returns true if a part has this status, and a reason that contains this text.
    pub fn says(&self, part: &str, status: &str, reason: &str) -> bool {
        let part = self.part(part);
        part["status"] == status && part["detail"].as_str().unwrap_or_default().contains(reason)
    }
}

impl Program {
    /// Returns what `/readyz` answers.
    pub async fn readiness(&self) -> Result<Readiness, String> {
        Readiness::of(&self.ops_address()).await.map_err(|error| error.to_string())
    }
}
