//! `standalone --demo`: shows the service at work on the terminal, through its public interfaces.
//!
//! Six devices connect to the broker like any device, one targeted push is sent to the HTTP
//! endpoint like that of any backend, and the ledger shows when it is done. Afterwards the devices
//! keep listening, so a push by `curl` from another terminal is printed here.

use std::{borrow::Cow, net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use push_boot::engines::Stores;
use push_credentials::DeviceCredentials;
use push_index::Index;
use push_ledger::Ledger;
use push_model::{
    app::{App, AppKey},
    device::{Device, DeviceDraft, NoTarget, Target, TargetFields},
    ids::{AppId, MessageId},
    message::Payload,
    secret::Secret,
    text::Literal,
    time::UnixMillis,
};
use push_mqtt::{MqttUrl, subscriber::Subscriber};
use push_operator::{client::Client, server::Server};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::output::{Output, Table};

const APP: &str = "demo";
const SECRET_FILE: &str = "demo.secret";
/// Client id, country, language, brand, model, Android API level, app version.
const DEVICES: [[&str; 7]; 6] = [
    ["shanghai-phone", "CN", "zh-Hans-CN", "Xiaomi", "14 Pro", "34", "2.1.0"],
    ["beijing-tablet", "CN", "zh-CN", "HUAWEI", "MatePad", "31", "2.0.0"],
    ["singapore-phone", "SG", "zh-SG", "OPPO", "Find X7", "34", "2.1.0"],
    ["singapore-english", "SG", "en-SG", "Samsung", "Galaxy S24", "34", "2.1.0"],
    ["berlin-phone", "DE", "de-DE", "Xiaomi", "14 Pro", "33", "2.1.0"],
    ["lisbon-phone", "PT", "pt-PT", "Nothing", "Phone (2)", "34", "1.9.3"],
];
/// Devices in China or Singapore with a Chinese language.
const TARGETING: &str = r#"{"country":["CN","SG"],"language":["zh"]}"#;
/// The time that the demo waits for its push to arrive.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(20);
/// The time for which the broker keeps the session of a demo device.
const SESSION: Duration = Duration::from_mins(10);
/// The interval at which the demo reads the ledger meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The most received messages that wait to be printed.
const RECEIVED_AHEAD: usize = 64;

/// The service that the demo shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// Its HTTP endpoint.
    pub(super) http: SocketAddr,
    /// The address for devices.
    pub(super) broker: &'a MqttUrl,
    pub(super) data_dir: &'a Path,
    /// Issues the logins of its devices.
    pub(super) logins: &'a DeviceCredentials,
}

/// Shows the demo, then prints what devices receive until `shutdown`.
pub(super) async fn run(
    stores: &Stores,
    place: Place<'_>,
    console: Option<&str>,
    shutdown: &CancellationToken,
    out: Output,
) -> anyhow::Result<()> {
    let Place { http, broker, data_dir, logins } = place;
    let app: AppId = APP.parse()?;
    let (index, ledger) = (&*stores.index, &*stores.ledger);
    let secret = make_app(index, &app, &data_dir.join(SECRET_FILE)).await?;
    let record = index.app(&app).await?.context("the demo's app is gone")?;
    let app_key = AppKey::from(&record);
    let devices = register(index, &app_key).await?;
    let ids: Vec<_> = devices.iter().map(|device| device.client_id.clone()).collect();
    let targets = index.targets(&app_key, &ids, TargetFields::Address).await?;
    let mut received = listen(broker, &app_key, targets, logins).await?;

    out.note(format_args!(
        "\nSix devices of the app `{APP}` listen over MQTT on {broker}.\n\
         One push goes to all devices in China or Singapore with a Chinese language:\n\
         \x20 \"targeting\": {TARGETING}\n"
    ));
    let body = body(TARGETING, "你好", "A targeted push");
    let id = send(http, &app, &secret, &body).await?;
    let got = wait(ledger, &app_key, &id, &mut received, shutdown).await?;
    let Some(got) = got else { return Ok(()) };
    show(&devices, &got, out)?;

    if let Some(link) = console {
        out.note(format_args!("\nThe console, signed in (the link works once): {link}"));
    }
    let broadcast = broadcast_body();
    out.note(format_args!(
        "\nNow you, from another terminal (this goes to all devices, and shows up here):\n\n\
         curl -sS http://{http}/v1/message/push/{APP} \\\n\
         \x20 -H \"Authorization: $(cat {})\" -H 'Content-Type: application/json' \\\n\
         \x20 -d '{broadcast}'\n\n\
         Stop with Ctrl-C.\n",
        data_dir.join(SECRET_FILE).display()
    ));
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            message = received.recv() => match message {
                Some((device, payload)) => {
                    out.note(format_args!("{device} received {}", describe(&payload)));
                }
                None => bail!("the demo's devices lost the broker"),
            },
        }
    }
}

/// Creates the app, or on a later run finds it, with the secret that the first run stored.
async fn make_app(index: &dyn Index, app: &AppId, file: &Path) -> anyhow::Result<Secret> {
    let stored = index.app(app).await?;
    if let (Ok(secret), Some(stored)) = (crate::app::read_secret(file), &stored)
        && stored.verify(secret.expose().as_bytes(), UnixMillis::now()).is_some()
    {
        return Ok(secret);
    }
    let secret = Secret::generate();
    write_for_owner(file, secret.expose())
        .with_context(|| format!("cannot write {}", file.display()))?;
    let mut fresh = App::new(app.clone(), &secret, UnixMillis::now());
    match stored {
        Some(stored) => {
            (fresh.generation, fresh.revision) = (stored.generation, stored.revision);
            index.update_app(&fresh).await?;
        }
        None => {
            index.create_app(&fresh).await?;
        }
    }
    Ok(secret)
}

fn write_for_owner(file: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write as _;

    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)?.write_all(text.as_bytes())
}

async fn register(index: &dyn Index, app: &AppKey) -> anyhow::Result<Vec<Device>> {
    let device = |[id, country, language, brand, model, os, version]: [&str; 7]| {
        let draft = DeviceDraft {
            country: Some(country.into()),
            language: Some(language.into()),
            brand: Some(brand.into()),
            model: Some(model.into()),
            os_version: Some(os.into()),
            app_version: Some(version.into()),
            ..DeviceDraft::default()
        };
        anyhow::Ok(draft.check(id.parse()?)?.device)
    };
    let devices = DEVICES.into_iter().map(device).collect::<anyhow::Result<Vec<_>>>()?;
    for put in index.put_devices(app, &devices, UnixMillis::now()).await? {
        put?;
    }
    Ok(devices)
}

type Received = mpsc::Receiver<(String, Bytes)>;

/// Connects every device. Their messages arrive in one channel, with the device's id.
async fn listen(
    broker: &MqttUrl,
    app: &AppKey,
    devices: Vec<Result<Target, NoTarget>>,
    logins: &DeviceCredentials,
) -> anyhow::Result<Received> {
    let (sender, receiver) = mpsc::channel(RECEIVED_AHEAD);
    for device in devices.into_iter().flatten() {
        let id = &device.client_id;
        let login = logins.issue(app, id, device.epoch, UnixMillis::now())?;
        let broker = broker.clone().with_login(&login.username, &login.password);
        let mut listener = Subscriber::connect(&broker, &app.id, id, SESSION)
            .await
            .with_context(|| format!("{} cannot connect to {broker}", device.client_id))?;
        let (sender, name) = (sender.clone(), device.client_id.to_string());
        tokio::spawn(async move {
            while let Ok(payload) = listener.next().await {
                if sender.send((name.clone(), payload)).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(receiver)
}

fn body(targeting: &str, title: &str, desc: &str) -> String {
    format!(
        r#"{{"type":1,"time_to_live":600,"condition":{{"type":1,"targeting":{targeting}}},"notification":{{"title":"{title}","desc":"{desc}"}}}}"#
    )
}

fn broadcast_body() -> &'static str {
    r#"{"type":1,"time_to_live":600,"condition":{"type":0},"notification":{"title":"Hello","desc":"everyone"}}"#
}

async fn send(
    http: SocketAddr,
    app: &AppId,
    secret: &Secret,
    body: &str,
) -> anyhow::Result<MessageId> {
    let server = Server::parse(&format!("http://{http}")).map_err(anyhow::Error::msg)?;
    let client = Client::new(server, app, secret);
    let body = body.to_owned();
    let send = move || client.push(None, body.as_bytes());
    let answer = tokio::task::spawn_blocking(send).await??;
    let id = answer.pointer("/result/message_id").and_then(serde_json::Value::as_str);
    id.with_context(|| format!("the push was refused: {answer}"))?.parse().context("message id")
}

/// Waits until the message is closed in the ledger and every device that was sent to has received
/// it. `None` if the demo is stopped before.
async fn wait(
    ledger: &dyn Ledger,
    app: &AppKey,
    id: &MessageId,
    received: &mut Received,
    shutdown: &CancellationToken,
) -> anyhow::Result<Option<Vec<(String, Bytes)>>> {
    let deadline = Instant::now() + DELIVERY_TIMEOUT;
    let mut got = Vec::new();
    loop {
        let entry = ledger.entry(app, id).await?;
        if let Some(entry) = &entry
            && entry.is_closed()
            && got.len() as u64 >= entry.outcomes.sent
        {
            return Ok(Some(got));
        }
        if Instant::now() > deadline {
            let seconds = DELIVERY_TIMEOUT.as_secs();
            bail!("the push did not arrive within {seconds} s; its ledger: {entry:?}");
        }
        tokio::select! {
            () = shutdown.cancelled() => return Ok(None),
            message = received.recv() => got.push(message.context("the demo's devices lost the broker")?),
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
}

fn show(devices: &[Device], got: &[(String, Bytes)], out: Output) -> anyhow::Result<()> {
    use push_model::{attributes::Attribute, targeting::Targeting};

    let targeting: Targeting = serde_json::from_str(TARGETING)?;
    let mut table = Table::new(&["DEVICE", "COUNTRY", "LANGUAGE", "BRAND", "VERSION", "RECEIVED"]);
    for device in devices {
        let has = |attribute| device.attributes.get(attribute).unwrap_or_default().to_owned();
        let payload = got.iter().find(|(name, _)| *name == device.client_id.as_str());
        let result = match (payload, targeting.matches(device)) {
            (Some((_, payload)), true) => describe(payload),
            (None, false) => "nothing, as it should: it is not targeted".to_owned(),
            (Some(_), false) => bail!("{} got a push that was not for it", device.client_id),
            (None, true) => bail!("{} did not get its push", device.client_id),
        };
        table.row([
            device.client_id.to_string(),
            has(Attribute::Country),
            has(Attribute::Language),
            has(Attribute::Brand),
            has(Attribute::AppVersion),
            result,
        ]);
    }
    out.note(table.to_string().trim_end());
    Ok(())
}

fn describe(payload: &[u8]) -> String {
    fn text(literal: Option<Literal<'_>>) -> Cow<'_, str> {
        literal.map(|literal| literal.text()).unwrap_or_default()
    }
    match serde_json::from_slice(payload) {
        Ok(Payload { notification: Some(n), .. }) => {
            let parts = [text(n.title), text(n.desc)];
            let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            if parts.is_empty() { "an empty notification".to_owned() } else { parts.join(" · ") }
        }
        Ok(Payload { data: Some(data), .. }) => format!("{data:?}"),
        Ok(_) => "an empty message".to_owned(),
        Err(error) => format!("an unreadable message: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_is_described_by_the_texts_that_it_has() {
        let of = |notification: &str| {
            let head = r#""message_id":"01a220a0-ffa8-7b91-913c-d501a3d82123","app_id":"demo","type":1,"accepted_at":0,"sequence":0"#;
            describe(
                format!(r#"{{{head},"expires_at":0,"notification":{notification}}}"#).as_bytes(),
            )
        };
        assert_eq!(
            of(r#"{"notification_type":1,"title":"Hello","desc":"everyone"}"#),
            "Hello · everyone"
        );
        assert_eq!(of(r#"{"notification_type":1,"title":"Hello"}"#), "Hello");
        assert_eq!(of(r#"{"notification_type":1,"desc":"everyone"}"#), "everyone");
        assert_eq!(of(r#"{"notification_type":1}"#), "an empty notification");
    }
}
