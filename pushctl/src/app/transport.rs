//! `pushctl app transport`: the accounts of an app at the providers that reach its devices.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use clap::{
    Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use push_boot::settings::{ConfigErrors, duration};
use push_credentials::SealFile;
use push_index::Index;
use push_model::{
    device::TransportKind,
    ids::{AppId, ClientId},
};
use push_operator::{
    app::{
        accounts::{self, AccountView, NewAccount},
        trial::{AccountTried, Providers, try_account},
    },
    audit::Actor,
};
use push_transports::http::HttpArgs;

use crate::output::{Output, Table};

/// The largest credential that is read, in bytes.
const MAX_CREDENTIAL: u64 = 64 * 1024;

/// Commands on the accounts of an app.
#[derive(Debug, Subcommand)]
pub enum TransportCommand {
    /// Set the account at a provider, in place of the one that is there (takes effect within 5 s)
    Set {
        /// The app
        app_id: AppId,
        /// The provider
        #[command(subcommand)]
        account: AccountCommand,
    },
    /// List the accounts, without their secrets
    List {
        /// The app
        app_id: AppId,
    },
    /// Try an account from this machine, with the settings of the workers
    ///
    /// Without a client id, asks the provider with a request that no device receives. Web Push has none: only
    /// the key is checked. A webhook gets a POST whose `type` is `test`, and must answer 2xx. With a client
    /// id, sends a test notification to that device. Fails if the account or the device does not work.
    #[command(mut_arg("fcm_quota", |quota| quota.hide(true)))]
    Test {
        /// The app
        app_id: AppId,
        /// The provider
        #[arg(value_parser = kind())]
        kind: TransportKind,
        /// A device that gets a test notification
        client_id: Option<ClientId>,
        /// The way to providers
        #[command(flatten)]
        providers: Box<HttpArgs>,
    },
    /// Remove an account; it is used no longer than 5 s
    Remove {
        /// The app
        app_id: AppId,
        /// The provider
        #[arg(value_parser = kind())]
        kind: TransportKind,
    },
}

/// The account of each provider.
#[derive(Debug, Subcommand)]
pub enum AccountCommand {
    /// Firebase Cloud Messaging, for Android
    Fcm {
        /// The JSON file of a service account: Firebase console, Project settings, Service accounts
        #[arg(long, value_name = "FILE")]
        service_account: PathBuf,
    },
    /// Apple Push Notification service, for iOS and macOS
    Apns {
        /// The .p8 file of the key
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// The id of the key
        #[arg(long, value_name = "ID")]
        key_id: String,
        /// The developer team
        #[arg(long, value_name = "ID")]
        team_id: String,
        /// The bundle id of the app
        #[arg(long, value_name = "BUNDLE")]
        topic: String,
        /// Send to devices with a development build
        #[arg(long)]
        sandbox: bool,
    },
    /// Web Push, for browsers and UnifiedPush: makes a VAPID key and prints the public one
    Webpush {
        /// Whom the operator of a push service can write to, `mailto:` or `https:`; if not given, the present
        /// one, at first mailto:webpush@example.com
        #[arg(long, value_name = "URL")]
        subject: Option<String>,
        /// Send notifications in the declarative form, which Safari shows without a service worker; they
        /// open this URL if they have no link. `none` ends it; if not given, it stays as it is
        #[arg(long, value_name = "URL")]
        declarative: Option<String>,
        /// Make a new key although there is one: every browser must subscribe again
        #[arg(long)]
        new_key: bool,
    },
    /// A webhook of your own, for any other channel: prints the secret of its signatures, once
    Webhook {
        /// Where requests go: `https:`
        #[arg(long, value_name = "URL")]
        url: String,
        /// Make a new secret; the present one signs as well for --overlap
        #[arg(long)]
        rotate_secret: bool,
        /// Sign with the earlier secret as well for this long after --rotate-secret
        #[arg(long, value_name = "TIME", default_value = "24h", value_parser = duration)]
        overlap: Duration,
    },
}

/// Reads the name of a transport that has a provider.
fn kind() -> impl TypedValueParser<Value = TransportKind> {
    let kinds = TransportKind::ALL.into_iter().filter(|kind| kind.has_provider());
    PossibleValuesParser::new(kinds.map(TransportKind::name))
        .try_map(|name| TransportKind::from_name(&name).ok_or("is no transport"))
}

impl AccountCommand {
    fn read(self) -> anyhow::Result<NewAccount> {
        Ok(match self {
            Self::Fcm { service_account } => {
                NewAccount::Fcm { service_account: read(&service_account)? }
            }
            Self::Apns { key, key_id, team_id, topic, sandbox } => {
                let text = String::from_utf8(read(&key)?);
                let key = text.ok().with_context(|| format!("{} is no text", key.display()))?;
                NewAccount::Apns { key, key_id, team_id, topic, sandbox }
            }
            Self::Webpush { subject, declarative, new_key } => {
                let declarative = declarative.map(|url| (url != "none").then_some(url));
                NewAccount::WebPush { subject, declarative, new_key }
            }
            Self::Webhook { url, rotate_secret, overlap } => {
                NewAccount::Webhook { url, rotate_secret: rotate_secret.then_some(overlap) }
            }
        })
    }
}

/// Reads a file that holds a credential.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let cannot = || format!("cannot read {}", path.display());
    let file = std::fs::File::open(path).with_context(cannot)?;
    let mut bytes = Vec::new();
    file.take(MAX_CREDENTIAL + 1).read_to_end(&mut bytes).with_context(cannot)?;
    anyhow::ensure!(
        u64::try_from(bytes.len()).is_ok_and(|len| len <= MAX_CREDENTIAL),
        "{} is larger than any credential",
        path.display()
    );
    Ok(push_model::text::without_mark(&bytes).to_vec())
}

/// Runs the command. `seal` opens the file of the keys that seal.
///
/// # Errors
/// If there is no such app or account, the account cannot work, or the index did not answer.
pub(super) async fn run(
    command: TransportCommand,
    index: &dyn Index,
    seal: impl FnOnce() -> anyhow::Result<Arc<SealFile>>,
    actor: &Actor,
    out: Output,
) -> anyhow::Result<()> {
    match command {
        TransportCommand::Set { app_id, account } => {
            let set = accounts::set(index, &*seal()?, actor, &app_id, account.read()?).await?;
            let kind = set.account.transport.name();
            let mut text = format!("{app_id} sends over {kind}: {}", set.account.summary);
            if let Some(key) = &set.public_key {
                text.push_str(&format!("\npublic key (applicationServerKey): {key}"));
            }
            if let Some(secret) = &set.signing_secret {
                text.push_str(&format!("\nsigning secret, not shown again: {secret}"));
            }
            if let Some(warning) = set.warning {
                out.note(format_args!("warning: {warning}"));
            }
            out.result(text, &set)
        }
        TransportCommand::List { app_id } => {
            let all = accounts::list(index, &app_id).await?;
            let text =
                if all.is_empty() { format!("{app_id} has no account") } else { table(&all) };
            out.result(text, &all)
        }
        TransportCommand::Test { app_id, kind, client_id, providers } => {
            let mut errors = ConfigErrors::default();
            let settings = providers.check(&mut errors);
            let providers = Providers::open(errors.finish(settings)?)?;
            let seal = seal()?;
            let client_id = client_id.as_ref();
            let tried = try_account(index, &seal, &providers, &app_id, kind, client_id).await?;
            out.result(verdict(&tried), &tried)?;
            anyhow::ensure!(tried.works, "the test failed");
            Ok(())
        }
        TransportCommand::Remove { app_id, kind } => {
            let removed = accounts::remove(index, actor, &app_id, kind).await?;
            out.result(format!("removed {} of {app_id}", kind.name()), &removed)
        }
    }
}

/// Describes a trial for a person.
fn verdict(tried: &AccountTried) -> String {
    let AccountTried { app_id, transport, works, found, remedy, .. } = tried;
    let result = if *works { "ok" } else { "FAILED" };
    let mut text = format!("{result}: {app_id} over {}: {found}", transport.name());
    if let Some(remedy) = remedy {
        text.push_str(&format!("\nwhat to do: {remedy}"));
    }
    text
}

fn table(accounts: &[AccountView]) -> String {
    let mut table = Table::new(&["TRANSPORT", "ACCOUNT", "SET"]);
    for AccountView { transport, summary, set_at } in accounts {
        table.row([transport.name().to_owned(), summary.clone(), set_at.to_string()]);
    }
    table.to_string()
}
