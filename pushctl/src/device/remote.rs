//! Single devices through the HTTP endpoint of a server, as a backend handles them.

use anyhow::{Context as _, Result};
use push_boot::terminal;
use push_model::ids::ClientId;
use push_operator::client::Client;
use serde_json::{Map, Value, json};

use super::{DeviceCommand, OneArgs, PutArgs, print, profile_args};
use crate::output::Output;

/// The path of devices.
const DEVICE: &str = "device";
/// The parts of an answer that are no part of the device.
const BESIDE: [&str; 3] = ["warnings", "mqtt", "access"];

/// Runs `show`, `put`, `patch` or `remove`.
///
/// # Errors
/// If there is no such device, or the server refuses the call.
pub(crate) async fn run(command: DeviceCommand, client: &Client, out: Output) -> Result<()> {
    match command {
        DeviceCommand::Show(OneArgs { client_id, .. }) => {
            print(&call(client, "GET", &client_id, Vec::new()).await?, out)
        }
        DeviceCommand::Remove(OneArgs { client_id, .. }) => {
            call(client, "DELETE", &client_id, Vec::new()).await?;
            out.result(format!("removed {client_id}"), &json!({ "removed": client_id }))
        }
        DeviceCommand::Put(args) => {
            let client_id = args.one.client_id.clone();
            let body = serde_json::to_vec(&args.fields())?;
            let mut stored = call(client, "PUT", &client_id, body).await?;
            note_warnings(&stored, out);
            if let Some(fields) = stored.as_object_mut() {
                fields.retain(|name, _| !BESIDE.contains(&name.as_str()));
            }
            out.result(format!("{client_id} registered"), &stored)
        }
        DeviceCommand::Patch(args) => {
            let client_id = args.one.client_id.clone();
            let body = serde_json::to_vec(&args.fields())?;
            let patched = call(client, "PATCH", &client_id, body).await?;
            note_warnings(&patched, out);
            out.result(format!("{client_id} changed"), &patched)
        }
        // A server does only these.
        _ => Ok(()),
    }
}

fn note_warnings(answer: &Value, out: Output) {
    let warnings = answer.get("warnings").and_then(Value::as_array);
    for warning in warnings.into_iter().flatten().filter_map(Value::as_str) {
        out.note(format_args!("warning: {}", terminal::line(warning)));
    }
}

async fn call(
    client: &Client,
    method: &'static str,
    device: &ClientId,
    body: Vec<u8>,
) -> Result<Value> {
    let result = client.call(method, DEVICE, device.as_str(), body).await?;
    result
        .with_context(|| format!("{} has no device {device} at {}", client.app(), client.server()))
}

impl PutArgs {
    /// Returns the fields that are given, as the body of a request.
    pub(super) fn fields(&self) -> Map<String, Value> {
        let fields = [
            ("country", &self.country),
            ("language", &self.language),
            ("brand", &self.brand),
            ("model", &self.model),
            ("os_version", &self.os_version),
            ("app_version", &self.app_version),
            ("transport", &self.transport),
            ("token", &self.token),
        ];
        let given = fields.into_iter().filter_map(|(name, text)| Some((name, text.as_ref()?)));
        let mut fields: Map<_, _> =
            given.map(|(name, text)| (name.to_owned(), json!(text))).collect();
        if !self.attribute.is_empty() {
            fields.insert("attributes".to_owned(), profile_args::object(&self.attribute));
        }
        if !self.topic.is_empty() {
            fields.insert("topics".to_owned(), json!(self.topic));
        }
        if let Some(user) = &self.user {
            fields.insert("user_id".to_owned(), json!(user));
        }
        fields
    }
}
