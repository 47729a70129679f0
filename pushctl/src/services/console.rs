//! `pushctl console`: the admin API as a program of its own, for the scaled form. It needs the queue and the
//! stores, and nothing else.

use std::{net::SocketAddr, path::Path};

use push_boot::{
    credentials::CredentialSettings,
    engines::{EngineSettings, watch_index, watch_queue},
    health::Need,
    log,
    metrics::MetricsSettings,
    presence::Announcement,
    program::{Program, ProgramArgs, ProgramSettings, Stage},
    proxy_protocol::ProxyArgs,
    seal::SealSettings,
    settings,
    settings::{ConfigErrors, address},
};
use push_console::{Console, ConsoleArgs, ConsoleSettings, Listener, Mqtt, PageParts, Parts};
use push_ingest::Settings as IngestSettings;
use push_operator::app::trial::Providers;
use push_transports::http::{HttpArgs, HttpSettings};
use tracing::info;

use crate::output::Output;

/// The name of the program in the log and in the audit trail.
const PROGRAM: &str = "console";

/// Flags of `console`.
#[derive(Debug, clap::Args)]
pub struct ConsoleCommandArgs {
    #[command(flatten)]
    console: ConsoleArgs,
    #[command(flatten)]
    proxies: ProxyArgs,
    #[command(flatten)]
    operations: OperationsArgs,
    #[command(flatten)]
    http: HttpArgs,
    #[command(flatten)]
    program: ProgramArgs,
}

settings! {
    /// The flag about the operations listener.
    struct OperationsArgs, "Listeners and stop" => OperationsValues {
        /// Serve /livez, /readyz and /metrics on this address
        ops_listen: SocketAddr = ["ADDRESS", "127.0.0.1:9083"] address;
    }
}

/// Checked flags.
struct Settings {
    console: ConsoleSettings,
    ops_listen: SocketAddr,
    http: HttpSettings,
    program: ProgramSettings,
    metrics: MetricsSettings,
    engines: EngineSettings,
    ingest: IngestSettings,
    credentials: (CredentialSettings, SealSettings),
}

impl ConsoleCommandArgs {
    fn check(
        &self,
        engines: Option<EngineSettings>,
        credentials: Option<(CredentialSettings, SealSettings)>,
        mut errors: ConfigErrors,
    ) -> Result<Settings, ConfigErrors> {
        let console = self.console.check(&mut errors);
        let proxies = self.proxies.check(&mut errors);
        let operations = self.operations.values(&mut errors);
        let http = self.http.check(&mut errors);
        let retention = engines.as_ref().map(|engines| engines.ledger_retention);
        let ingest = IngestSettings::local(retention, &mut errors);
        let namespace = engines.as_ref().map(|engines| &*engines.namespace);
        let program = self.program.check(log::DEFAULT_FILTER, namespace, &mut errors);
        if let Some(None) = console {
            errors.note(
                "--admin-listen (PUSH_ADMIN_LISTEN): is off, and this program serves nothing else",
            );
        }
        let settings = (|| {
            let (program, metrics) = program?;
            Some(Settings {
                console: console??.behind(&proxies?),
                ops_listen: operations?.ops_listen,
                http: http?,
                program,
                metrics,
                engines: engines?,
                ingest: ingest?,
                credentials: credentials?,
            })
        })();
        errors.finish(settings)
    }
}

/// Runs until a signal stops it, then finishes the requests in work.
///
/// # Errors
/// If a setting is wrong, an address is taken, a key file cannot be read, or the queue or a store cannot be used.
pub async fn run(
    args: ConsoleCommandArgs,
    engines: Option<EngineSettings>,
    credentials: Option<(CredentialSettings, SealSettings)>,
    errors: ConfigErrors,
    data_dir: &Path,
    out: Output,
) -> anyhow::Result<()> {
    let settings = args.check(engines, credentials, errors)?;
    let program = Program::begin(PROGRAM, settings.program);
    let (credentials, seal) = settings.credentials;
    let seal = seal.open_if_there(data_dir)?;
    let has_url = credentials.websocket_url.is_some();
    let logins = credentials.open_if_there(data_dir)?.filter(|_| has_url);
    let providers = Providers::open(settings.http)?;
    let listener = Listener::bind(&settings.console).await?;
    let mut start = program.start(settings.ops_listen).await?;
    let opened = start.open_engines(&settings.engines, settings.metrics).await?;
    watch_queue(&start.health, &opened.queue);
    watch_index(&start.health, Need::Required, &opened.stores);
    let listens = vec![("admin", listener.local_addr()?)];
    let announcement = Announcement { listens, ..Announcement::default() };
    start.announce(opened.stores.index.clone(), announcement);
    let parts = Parts {
        program: PROGRAM,
        queue: opened.queue.clone(),
        stores: opened.stores.clone(),
        retention: settings.engines.ledger_retention,
        seal,
        providers,
        health: start.health.clone(),
    };
    let ingest_url = "$PUSH_SERVER".to_owned();
    let pages = PageParts {
        ingest: settings.ingest,
        ingest_url,
        mqtt: logins.map(|logins| Mqtt { logins, websockets: None }),
    };
    let (address, scheme) = (listener.local_addr()?, listener.scheme());
    info!(admin = %address, ops = %start.ops_address(), "console started");
    let mut service = start.complete();
    let console = Console::new(listener, parts, pages)?;
    service.run(Stage::Requests, "the admin API", |stop| console.run(stop));
    out.note(format_args!("console on {scheme}://{address}; stop with Ctrl-C"));
    service.until_stopped().await
}
