//! The providers of a run, played by the test, and how faults strike them.

use std::time::Duration;

use push_tests::{
    certificates::Authority,
    phone_server::{Face, PhoneServer, Receipt, Reply, fcm_error},
    stack::{APP, Stack},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    sync::{Mutex, mpsc::Receiver},
    time::sleep,
};

use crate::schedule::fault::{Blow, Provider};

/// A key for tests alone.
const RSA_KEY: &str = include_str!("../../shared/providers/testdata/rsa_key_of_tests.pem");
/// Time that a busy provider asks to wait, in seconds.
const BUSY: u32 = 1;

/// The servers of the providers, and the service of FCM's access tokens, which no fault strikes.
pub(crate) struct Providers {
    fcm: Mutex<PhoneServer>,
    webhook: Mutex<PhoneServer>,
    tokens: PhoneServer,
    authority: Authority,
    folder: TempDir,
}

/// What the providers take, as they report it.
pub(crate) struct Taken {
    pub(crate) fcm: Receiver<Receipt>,
    pub(crate) webhook: Receiver<Receipt>,
}

impl Providers {
    pub(crate) async fn start() -> (Self, Taken) {
        let authority = Authority::new();
        let certificate = authority.local_server();
        let fcm = PhoneServer::start(Face::Fcm, None).await;
        let webhook = PhoneServer::start(Face::Webhook, Some(&certificate)).await;
        for server in [&fcm, &webhook] {
            server.behave(|wire| wire.resets = true);
        }
        let taken = Taken { fcm: fcm.receipts(), webhook: webhook.receipts() };
        let providers = Self {
            fcm: Mutex::new(fcm),
            webhook: Mutex::new(webhook),
            tokens: PhoneServer::start(Face::Tokens, Some(&certificate)).await,
            authority,
            folder: TempDir::new().unwrap(),
        };
        (providers, taken)
    }

    /// Sets the app's accounts.
    pub(crate) async fn set_accounts(&self, stack: &Stack) {
        let keys = self.file("seal-keys.json");
        stack.pushctl(&["key", "seal", &keys]).await;
        let account = json!({
            "type": "service_account", "project_id": "project", "private_key_id": "5d1e",
            "private_key": RSA_KEY, "client_email": "push@project.iam.gserviceaccount.com",
            "token_uri": format!("{}/token", self.tokens.url()),
        });
        let file = self.file("service-account.json");
        std::fs::write(&file, account.to_string()).unwrap();
        let url = format!("{}/push", self.webhook.lock().await.url());
        for account in [["fcm", "--service-account", &file], ["webhook", "--url", &url]] {
            let set = ["app", "transport", "set", APP];
            stack.pushctl(&[&set[..], &account, &["--seal-key", &keys]].concat()).await;
        }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// The flags of workers about providers.
    pub(crate) async fn worker_flags(&self) -> Vec<String> {
        let fcm = self.fcm.lock().await.url();
        let (authority, keys) = (self.authority.file(), self.file("seal-keys.json"));
        let flags = [
            ["--fcm-url", &fcm],
            ["--outbound-ca", authority.to_str().unwrap()],
            ["--outbound-allow", "127.0.0.0/8"],
            ["--seal-key", &keys],
            ["--tune", "provider-request-timeout=5s"],
            ["--tune", "provider-delivery-timeout=20s"],
        ];
        flags.into_iter().flatten().map(str::to_owned).collect()
    }

    /// Places a fault, waits for its duration, and ends it. `Err` if providers have no such fault.
    pub(crate) async fn strike(
        &self,
        provider: Provider,
        blow: Blow,
        away: Duration,
    ) -> Result<(), String> {
        let server = match provider {
            Provider::Fcm => self.fcm.lock().await,
            Provider::Webhook => self.webhook.lock().await,
        };
        match blow {
            Blow::Kill => server.kill(),
            Blow::Freeze => server.behave(|wire| wire.is_black_hole = true),
            Blow::Late(by) => server.answer(move |_, _| Reply::taken().after(by)),
            Blow::Busy => server.answer(busy),
            Blow::Goodbye(requests) => server.behave(|wire| wire.goodbye_after = Some(requests)),
            Blow::Cut(bytes) => server.cut_open_connections(Some(bytes)),
            other => return Err(format!("{other:?} is not for a provider")),
        }
        sleep(away).await;
        server.revive();
        server.behave(|wire| (wire.is_black_hole, wire.goodbye_after) = (false, None));
        server.answer(|_, _| Reply::taken());
        server.cut_open_connections(None);
        Ok(())
    }
}

/// Too many requests, or the server fails: for each device by turns, and not for all at the same time.
fn busy(device: &str, times: u32) -> Reply {
    let length = u32::try_from(device.len()).unwrap_or_default();
    let last = device.bytes().last().map_or(0, u32::from);
    let (status, code) = match (length + last + times) % 2 {
        0 => (429, "QUOTA_EXCEEDED"),
        _ => (503, "UNAVAILABLE"),
    };
    Reply::answer(status, fcm_error(status, code)).retry_after(BUSY)
}
