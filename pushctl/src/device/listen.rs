//! `pushctl device listen`: connects as a device and prints what it receives.

use std::time::Duration;

use push_model::ids::{AppId, ClientId};
use push_mqtt::{BadMqttUrl, MqttUrl};
use push_service::{settings::duration, shutdown};
use serde_json::{Value, json};
use tracing::debug;

use super::subscriber::{Subscriber, SubscriberError};
use crate::output::Output;

/// The pause before each attempt to connect again.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// The device to listen as.
#[derive(Debug, clap::Args)]
pub struct ListenArgs {
    /// The app
    app_id: AppId,
    /// The device
    client_id: ClientId,
    /// The broker that devices connect to: `mqtt://[user:password@]host[:port]`, or `mqtts://…`
    #[arg(
        long,
        env = "PUSH_MQTT_URL",
        value_name = "URL",
        default_value = "mqtt://127.0.0.1:1883",
        hide_env_values = true,
        value_parser = |url: &str| url.parse::<MqttUrl>().map_err(|bad: BadMqttUrl| bad.to_string())
    )]
    mqtt_url: MqttUrl,
    /// How long the broker keeps messages for the device after this command ends
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    session: Duration,
    /// Stop after this many messages
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

/// Prints messages, one a line, until Ctrl-C or `--count`.
///
/// # Errors
/// If the broker cannot be reached at the start, or refuses the device.
pub async fn run(args: ListenArgs, out: Output) -> anyhow::Result<()> {
    let stop = shutdown::on_signal();
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut session = connect(&args).await?;
    out.note(format_args!("{} listens on {}", args.client_id, args.mqtt_url));
    while left > 0 {
        let next = tokio::select! {
            () = stop.cancelled() => break,
            next = session.next() => next,
        };
        match next {
            Ok(payload) => {
                let text = String::from_utf8_lossy(&payload).into_owned();
                let message = serde_json::from_str(&text).unwrap_or_else(|_| json!(text));
                out.result(
                    &text,
                    &json!({ "client_id": args.client_id, "message": message as Value }),
                )?;
                left -= 1;
            }
            Err(SubscriberError::Refused(reason)) => {
                return Err(SubscriberError::Refused(reason).into());
            }
            Err(error) => {
                out.note(format_args!("connection lost ({error}), connecting again"));
                let Some(reconnected) = reconnect(&args, &stop).await else { break };
                session = reconnected;
            }
        }
    }
    session.close().await;
    Ok(())
}

async fn connect(args: &ListenArgs) -> Result<Subscriber, SubscriberError> {
    Subscriber::connect(&args.mqtt_url, &args.app_id, &args.client_id, args.session).await
}

/// Tries until the broker accepts the device; `None` if the command is stopped before.
async fn reconnect(
    args: &ListenArgs,
    stop: &tokio_util::sync::CancellationToken,
) -> Option<Subscriber> {
    loop {
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(RECONNECT_PAUSE) => {}
        }
        match connect(args).await {
            Ok(session) => return Some(session),
            Err(error) => debug!(%error, "the broker is still unavailable"),
        }
    }
}
