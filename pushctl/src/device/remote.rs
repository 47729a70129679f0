//! Single devices through the HTTP endpoint of a server, as a backend handles them.

use anyhow::{Context as _, Result};
use push_boot::terminal;
use push_model::ids::ClientId;
use push_operator::client::Client;
use serde_json::{Map, Value, json};

use super::{DeviceCommand, OneArgs, PutArgs, print};
use crate::output::Output;

/// The path of devices.
const DEVICE: &str = "device";
/// The parts of an answer that are no part of the device.
const BESIDE: [&str; 2] = ["warnings", "mqtt"];

/// Runs `show`, `put` or `remove`.
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
            let warnings = stored.get("warnings").and_then(Value::as_array);
            for warning in warnings.into_iter().flatten().filter_map(Value::as_str) {
                out.note(format_args!("warning: {}", terminal::line(warning)));
            }
            if let Some(fields) = stored.as_object_mut() {
                fields.retain(|name, _| !BESIDE.contains(&name.as_str()));
            }
            out.result(format!("{client_id} registered"), &stored)
        }
        // A server does only these.
        _ => Ok(()),
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
    fn fields(&self) -> Map<String, Value> {
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
        given.map(|(name, text)| (name.to_owned(), json!(text))).collect()
    }
}
