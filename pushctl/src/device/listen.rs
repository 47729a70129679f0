//! `pushctl device listen`: connects as a device and prints what it receives.

use std::time::Duration;

use push_boot::{
    settings::{ConfigErrors, duration},
    shutdown, terminal,
};
use push_model::ids::{AppId, ClientId};
use push_mqtt::{
    MqttUrl,
    subscriber::{Subscriber, SubscriberError},
};
use push_operator::device::AppLogins;
use push_transports::mqtt::MqttBrokerArgs;
use serde_json::{Value, json};
use tracing::debug;

use crate::output::Output;

/// The address of the embedded broker of `pushctl standalone`.
const DEFAULT_BROKER: &str = "mqtt://127.0.0.1:1883";
/// The pause before each attempt to connect again.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// The device to listen as.
#[derive(Debug, clap::Args)]
pub struct ListenArgs {
    /// The app
    app_id: AppId,
    /// The device
    client_id: ClientId,
    #[command(flatten)]
    broker: MqttBrokerArgs,
    /// Let the broker keep messages for the device for this long after this command ends
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    session: Duration,
    /// Stop after this many messages
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

impl ListenArgs {
    /// Returns the broker to connect to.
    ///
    /// # Errors
    /// If the URL of the broker is wrong.
    pub fn broker(&self) -> Result<MqttUrl, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let broker = self.broker.check(Some(DEFAULT_BROKER), &mut errors);
        errors.finish(broker.flatten())
    }

    /// Returns the app.
    pub fn app_id(&self) -> &AppId {
        &self.app_id
    }
}

/// Prints messages, one per line, until Ctrl-C or `--count`.
///
/// # Errors
/// If the broker cannot be reached at the start, or refuses the device.
pub async fn run(
    args: ListenArgs,
    broker: MqttUrl,
    logins: Option<AppLogins>,
    out: Output,
) -> anyhow::Result<()> {
    let stop = shutdown::on_signal();
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut session = connect(&args, &broker, logins.as_ref()).await?;
    out.note(format_args!("{} listens on {broker}", args.client_id));
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
                    terminal::line(&text),
                    &json!({ "client_id": args.client_id, "message": message as Value }),
                )?;
                left -= 1;
            }
            Err(SubscriberError::Refused(reason)) => {
                return Err(SubscriberError::Refused(reason).into());
            }
            Err(error) => {
                out.note(format_args!("connection lost ({error}), connecting again"));
                let reconnected = reconnect(&args, &broker, logins.as_ref(), &stop).await;
                let Some(reconnected) = reconnected else { break };
                session = reconnected;
                out.note(format_args!("{} listens on {broker} again", args.client_id));
            }
        }
    }
    session.close().await;
    Ok(())
}

/// Connects. Each connection has a login of its own, because one may have expired by the next.
async fn connect(
    args: &ListenArgs,
    broker: &MqttUrl,
    logins: Option<&AppLogins>,
) -> anyhow::Result<Subscriber> {
    let mut broker = broker.clone();
    if let Some(logins) = logins {
        let login = logins.issue(&args.client_id).await?;
        broker = broker.with_login(&login.username, &login.password);
    }
    Ok(Subscriber::connect(&broker, &args.app_id, &args.client_id, args.session).await?)
}

/// Tries until the broker accepts the device; `None` if the command is stopped before.
async fn reconnect(
    args: &ListenArgs,
    broker: &MqttUrl,
    logins: Option<&AppLogins>,
    stop: &tokio_util::sync::CancellationToken,
) -> Option<Subscriber> {
    loop {
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(RECONNECT_PAUSE) => {}
        }
        match connect(args, broker, logins).await {
            Ok(session) => return Some(session),
            Err(error) => debug!("{error:#}: the broker is still unavailable"),
        }
    }
}
