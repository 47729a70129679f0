//! An app whose devices are phones or browsers, with an account at a provider that a server plays.

use std::{
    fs::File,
    io::{BufWriter, Write as _},
};

use push_tests::{
    certificates::Authority,
    phone_server::{Face, PhoneServer},
    service::Program,
    stack::APP,
};
use serde_json::json;
use tempfile::TempDir;

use super::{Environment, LoadedApp, environment::import_file};
use crate::load::{
    phone_provider::{PhoneProvider, Plays, WATCHED, fcm_token},
    producer::Connection,
};

/// A key for tests alone.
const RSA_KEY: &str = include_str!("../../../shared/providers/testdata/rsa_key_of_tests.pem");
/// The key and the secret of the browser in RFC 8291, section 5.
const BROWSER_KEY: &str =
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const BROWSER_SECRET: &str = "BTBZMqHH6r4Tts7J_aSIgg";
/// The client id of the watched phone.
pub(crate) const WATCHED_CLIENT: &str = "watched";

/// The app, its provider, and what its workers need to reach it.
pub(crate) struct Phones {
    pub(crate) provider: PhoneProvider,
    pub(crate) loaded: LoadedApp,
    /// The number of its devices.
    pub(crate) size: usize,
    flags: Vec<String>,
    _access_tokens: PhoneServer,
    /// Its file is read again for each connection.
    _authority: Authority,
    _folder: TempDir,
}

impl Phones {
    /// Starts the servers, sets the account and imports `others` devices and the watched one.
    pub(crate) async fn start(
        env: &Environment,
        plays: Plays,
        others: usize,
    ) -> anyhow::Result<Self> {
        let (authority, folder) = (Authority::new(), TempDir::new()?);
        let certificate = authority.local_server();
        let with_tls = Some(&certificate);
        // An endpoint that a browser names is reached over TLS alone.
        let provider =
            PhoneProvider::start(plays, with_tls.filter(|_| plays == Plays::WebPush)).await?;
        let access_tokens = PhoneServer::start(Face::Tokens, with_tls).await;
        let loaded = env.load(0, "mqtt").await?;
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let (keys, file, devices) = (path("keys"), path("account"), path("devices"));
        loaded.stack.pushctl(&["key", "seal", &keys]).await;
        std::fs::write(&file, service_account(&access_tokens.url()))?;
        let account = match plays {
            Plays::Fcm => ["fcm", "--service-account", &file],
            Plays::WebPush => ["webpush", "--subject", "mailto:push@example.com"],
        };
        let set = [&["app", "transport", "set", APP][..], &account, &["--seal-key", &keys]];
        loaded.stack.pushctl(&set.concat()).await;
        let size = others + 1;
        let mut writer = BufWriter::new(File::create(&devices)?);
        for number in (0..others).chain([WATCHED]) {
            let client = match number {
                WATCHED => WATCHED_CLIENT.to_owned(),
                number => format!("phone-{number}"),
            };
            let (transport, token) = match plays {
                Plays::Fcm => ("fcm", fcm_token(number)),
                Plays::WebPush => ("webpush", subscription(&provider.endpoint(number))),
            };
            writeln!(
                writer,
                "{}",
                json!({"client_id": client, "transport": transport, "token": token})
            )?;
        }
        writer.flush()?;
        import_file(&loaded.stack, APP, size, devices.as_ref()).await?;
        let authorities = authority.file().to_string_lossy().into_owned();
        let mut flags =
            vec!["--seal-key".to_owned(), keys, "--outbound-ca".to_owned(), authorities];
        flags.extend(["--outbound-allow", "127.0.0.0/8"].map(str::to_owned));
        if plays == Plays::Fcm {
            flags.extend(["--fcm-url".to_owned(), provider.url()]);
        }
        let (_access_tokens, _authority, _folder) = (access_tokens, authority, folder);
        Ok(Self { provider, loaded, size, flags, _access_tokens, _authority, _folder })
    }

    /// Starts a worker with these flags besides those it needs.
    pub(crate) async fn worker(&self, more: &[&str]) -> Program {
        let mut flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        flags.extend(more);
        self.loaded.stack.worker(&flags).await
    }

    pub(crate) async fn connect(&self) -> anyhow::Result<Connection> {
        self.loaded.producer().connect().await
    }
}

/// The file of a service account whose access tokens come from this server.
fn service_account(access_tokens: &str) -> String {
    json!({
        "type": "service_account",
        "project_id": "project",
        "private_key_id": "5d1e",
        "private_key": RSA_KEY,
        "client_email": "push@project.iam.gserviceaccount.com",
        "token_uri": format!("{access_tokens}/token"),
    })
    .to_string()
}

/// A browser's subscription with this endpoint, as it registers it.
fn subscription(endpoint: &str) -> String {
    let keys = json!({"p256dh": BROWSER_KEY, "auth": BROWSER_SECRET});
    json!({"endpoint": endpoint, "keys": keys}).to_string()
}
