//! The flags of ingest, and their check. Each part declares its own; all mistakes are reported together.

use clap::Parser as _;
use push_boot::{
    settings,
    settings::{ConfigErrors, share},
};
use push_model::ledger::Retention;

use super::{
    PublisherSettings, Rules, Settings, apps::AppArgs, broker_auth::BrokerAuthArgs,
    http::RequestArgs, listener::ListenerArgs,
};

/// The flags of ingest, as they were given.
#[derive(Debug, Clone, clap::Args)]
pub struct IngestArgs {
    #[command(flatten)]
    listener: ListenerArgs,
    #[command(flatten)]
    http: RequestArgs,
    #[command(flatten)]
    apps: AppArgs,
    #[command(flatten)]
    broker_auth: BrokerAuthArgs,
    #[command(flatten)]
    traces: RequestTraceArgs,
}

/// The flags that a push from within a program depends on, which only the environment sets.
#[derive(Debug, clap::Parser)]
#[command(no_binary_name = true)]
struct LocalArgs {
    #[command(flatten)]
    http: RequestArgs,
    #[command(flatten)]
    apps: AppArgs,
}

impl Settings {
    /// Returns the settings of [`LocalPushes`](crate::LocalPushes) in a program that serves no producers: the
    /// defaults, and what the environment of `ingest` sets. Faults are added to `errors`.
    pub fn local(ledger_retention: Option<Retention>, errors: &mut ConfigErrors) -> Option<Self> {
        let publisher = PublisherSettings::read(errors.tuning());
        let args = match LocalArgs::try_parse_from(std::iter::empty::<&str>()) {
            Ok(args) => args,
            Err(error) => {
                errors.note(error.to_string());
                return None;
            }
        };
        let (http, apps) = (args.http.check(errors), args.apps.check(errors));
        let (http, max_client_ids) = http?;
        let nowhere = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        Some(Self {
            listen: nowhere,
            tls: None,
            ops_listen: nowhere,
            drain_deadline: std::time::Duration::ZERO,
            http,
            rules: Rules { max_client_ids },
            apps: apps?,
            publisher,
            ledger_retention: ledger_retention?,
            device_credentials: None,
            over_mqtt: true,
            broker_auth: None,
            is_traced: false,
            trace_ratio: 0.0,
        })
    }
}

settings! {
    /// Flags about the traces of requests.
    struct RequestTraceArgs, "Log, metrics and traces" => RequestTraceValues {
        /// Trace this share of requests, from 0 to 1, if there is --otlp-url. A request with a header
        /// `traceparent` is traced if its caller says so
        trace_ratio: f64 = ["SHARE", "0.01"] share;
    }
}

impl IngestArgs {
    /// Takes `--http-in-clear on` as the default, as a demo does.
    pub fn default_to_in_clear(&mut self) {
        self.listener.default_to_in_clear();
    }

    /// Returns the settings that these flags stand for. Faults are added to `errors`. `ledger_retention`
    /// comes from the flags of the engines, which all programs have.
    pub fn check(
        &self,
        ledger_retention: Option<Retention>,
        errors: &mut ConfigErrors,
    ) -> Option<Settings> {
        let publisher = PublisherSettings::read(errors.tuning());
        let listener = self.listener.check(errors);
        let http = self.http.check(errors);
        let apps = self.apps.check(errors);
        let broker_auth = self.broker_auth.check(errors);
        let traces = self.traces.values(errors);
        let (listener, (http, max_client_ids)) = (listener?, http?);
        Some(Settings {
            listen: listener.listen,
            tls: listener.tls,
            ops_listen: listener.ops_listen,
            drain_deadline: listener.drain_deadline,
            http,
            rules: Rules { max_client_ids },
            apps: apps?,
            publisher,
            ledger_retention: ledger_retention?,
            device_credentials: None,
            over_mqtt: true,
            broker_auth: broker_auth?,
            is_traced: false,
            trace_ratio: traces?.trace_ratio,
        })
    }
}
