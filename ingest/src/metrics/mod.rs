//! The metrics of ingest. All names are here and in `levels`, with their units in them.
//! `docs/reference/metrics.md` says what each of them means.
//!
//! An accepted push needs no lookup: its handles are in [`Metrics`], and those of its app in the
//! cached record of the app. Levels (pushes that wait, memory in use, cached apps) are read when
//! they are published, and cost a push nothing.

mod broker_refusals;
mod counts;
mod http2_refusals;
mod levels;
mod untrusted_proxies;

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};
use push_boot::metrics::{ByApp, ByLabel, Histogram};
use push_index::AttributeSet;
use push_model::{attributes::Attribute, ids::AppId};

use self::{
    broker_refusals::BrokerRefusals,
    levels::{LevelCollector, Levels},
};
pub(crate) use self::{
    broker_refusals::RefusalReason, http2_refusals::Http2Refusal, levels::Level,
    untrusted_proxies::ProxyClaim,
};
use crate::route::Route;

/// The number of apps that have metrics of their own if no setting says it.
const DEFAULT_APPS: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answer {
    call: &'static str,
    status: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AppResult {
    app: String,
    result: &'static str,
}

/// The pushes of one app whose secret was right.
#[derive(Debug, Default)]
pub(crate) struct AppPushes {
    /// Answered 200.
    pub(crate) accepted: Counter,
    pub(crate) rejected: Counter,
}

/// The app records that were read from the index.
#[derive(Debug)]
pub(crate) struct AppReads {
    all: ByLabel<Counter>,
    pub(crate) found: Counter,
    /// There is no such app.
    pub(crate) absent: Counter,
    /// The index did not answer.
    pub(crate) failed: Counter,
}

impl Default for AppReads {
    fn default() -> Self {
        let all = by("result", []);
        Self { found: all.of("found"), absent: all.of("absent"), failed: all.of("failed"), all }
    }
}

/// The metrics of one ingest.
#[derive(Debug)]
pub struct Metrics {
    answers: Family<Answer, Counter>,
    /// The counter of accepted pushes, which nearly every request increments. It is looked up in
    /// `answers` once.
    pushed: Counter,
    request_seconds: ByLabel<Histogram>,
    /// The one of pushes, looked up once.
    push_seconds: Histogram,
    app_family: Family<AppResult, Counter>,
    apps: ByApp<AppPushes>,
    pub(crate) app_reads: AppReads,
    push_wait_seconds: Histogram,
    batches: Counter,
    failed_batches: Counter,
    batch_pushes: Histogram,
    batch_bytes: Histogram,
    publish_seconds: Histogram,
    connections: Gauge,
    pub(crate) turned_away: Counter,
    pub(crate) evicted: Counter,
    absent_attributes: ByLabel<Counter>,
    pub(crate) failed_logins: Counter,
    pub(crate) settled_usage: Counter,
    pub(crate) broker_refusals: BrokerRefusals,
    http2_refusals: ByLabel<Counter>,
    untrusted_proxies: ByLabel<Counter>,
    pub(crate) levels: Arc<Levels>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(DEFAULT_APPS)
    }
}

impl Metrics {
    /// The metrics of an ingest, where the first `apps` apps have their own.
    pub fn new(apps: usize) -> Self {
        let answers = Family::<Answer, Counter>::default();
        let pushed = answers.get_or_create_owned(&Answer { call: Route::PUSH, status: 200 });
        let request_seconds = ByLabel::new("call", [], Histogram::of_short_times);
        let push_seconds = request_seconds.of(Route::PUSH);
        let app_family = Family::<AppResult, Counter>::default();
        Self {
            answers,
            pushed,
            request_seconds,
            push_seconds,
            apps: by_app(apps, app_family.clone()),
            app_family,
            app_reads: AppReads::default(),
            push_wait_seconds: Histogram::of_short_times(),
            batches: Counter::default(),
            failed_batches: Counter::default(),
            batch_pushes: Histogram::of_counts(12),
            // 1 KiB to 8 MiB.
            batch_bytes: Histogram::new((10..24).map(|power| f64::from(1 << power))),
            publish_seconds: Histogram::of_short_times(),
            connections: Gauge::default(),
            turned_away: Counter::default(),
            evicted: Counter::default(),
            absent_attributes: by("attribute", Attribute::ALL.map(Attribute::name)),
            failed_logins: Counter::default(),
            settled_usage: Counter::default(),
            broker_refusals: BrokerRefusals::default(),
            http2_refusals: by("reason", Http2Refusal::ALL.map(Http2Refusal::name)),
            untrusted_proxies: by("claim", ProxyClaim::ALL.map(ProxyClaim::name)),
            levels: Arc::default(),
        }
    }

    /// Adds the metrics to those that the service publishes.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(LevelCollector(Arc::clone(&self.levels))));
        let registry = registry.sub_registry_with_prefix("push_ingest");
        self.register_requests(registry);
        self.register_publishing(registry);
    }

    fn register_requests(&self, registry: &mut Registry) {
        registry.register("answers", "Answers, by call and status", self.answers.clone());
        let help = "From the head of a request to its answer";
        let seconds = self.request_seconds.family();
        registry.register_with_unit("request", help, Unit::Seconds, seconds);
        let help = "Pushes of apps whose secret was right";
        registry.register("app_pushes", help, self.app_family.clone());
        let help = "Records of apps read from the index";
        registry.register("app_reads", help, self.app_reads.all.family());
        let help = "Requests with a wrong secret";
        registry.register("failed_logins", help, self.failed_logins.clone());
        let help = "Messages that counted against a quota of waiting messages after they had ended";
        registry.register("settled_usage", help, self.settled_usage.clone());
        let help = "Refusals that MQTT brokers were answered with, by the reason";
        registry.register("broker_refusals", help, self.broker_refusals.family.clone());
        let help = "HTTP/2 connections and streams that were ended, by the reason";
        registry.register("http2_refusals", help, self.http2_refusals.family());
        let help =
            "Connections and requests in which an address that is not trusted names a client";
        registry.register("untrusted_proxies", help, self.untrusted_proxies.family());
        registry.register("connections", "Open connections", self.connections.clone());
        let help = "Connections refused because the service or their address had too many";
        registry.register("turned_away", help, self.turned_away.clone());
        let help = "Idle connections closed to make room for others";
        registry.register("evicted", help, self.evicted.clone());
        let help = "Attributes stored as absent because the app's dictionaries had no room";
        registry.register("absent_attributes", help, self.absent_attributes.family());
    }

    fn register_publishing(&self, registry: &mut Registry) {
        let help = "From when a push was checked to the confirm of its message to the queue";
        let seconds = self.push_wait_seconds.clone();
        registry.register_with_unit("push_wait", help, Unit::Seconds, seconds);
        let help = "From sending a message to its confirm";
        registry.register("publish_seconds", help, self.publish_seconds.clone());
        registry.register("batches", "Messages sent to the queue", self.batches.clone());
        let help = "Messages that the queue did not confirm";
        registry.register("failed_batches", help, self.failed_batches.clone());
        registry.register("batch_pushes", "Pushes in a message", self.batch_pushes.clone());
        let help = "Size of a message";
        registry.register_with_unit("batch", help, Unit::Bytes, self.batch_bytes.clone());
    }

    /// Counts a connection as open until the guard is dropped.
    pub(crate) fn open_connection(self: &Arc<Self>) -> OpenConnection {
        self.connections.inc();
        OpenConnection(Arc::clone(self))
    }

    /// The counters of an app, to be kept with its record.
    pub(crate) fn app_pushes(&self, app: &AppId) -> Arc<AppPushes> {
        self.apps.of(app)
    }

    /// Counts attributes of a device that were stored as absent.
    pub(crate) fn absent(&self, attributes: AttributeSet) {
        for attribute in attributes.iter() {
            self.absent_attributes.of(attribute.name()).inc();
        }
    }

    /// Counts a push that was answered 200.
    pub(crate) fn pushed(&self, took: Duration) {
        self.pushed.inc();
        self.push_seconds.observe_time(took);
    }

    /// Counts the answers to pushes that came in a request with many pushes.
    pub(crate) fn answered_lines(&self, status: u32, lines: usize) {
        let answer = Answer { call: Route::BATCH_LINE, status };
        self.answers.get_or_create(&answer).inc_by(u64::try_from(lines).unwrap_or(u64::MAX));
    }

    pub(crate) fn answered(&self, call: &'static str, status: u32, took: Duration) {
        self.answers.get_or_create(&Answer { call, status }).inc();
        self.request_seconds.of(call).observe_time(took);
    }

    /// Counts an HTTP/2 connection or stream that is ended.
    pub(crate) fn http2_refused(&self, why: Http2Refusal) {
        self.http2_refusals.of(why.name()).inc();
    }

    /// Counts a connection or a request whose peer names a client and is not trusted to.
    pub(crate) fn untrusted_proxy(&self, claim: ProxyClaim) {
        self.untrusted_proxies.of(claim.name()).inc();
    }

    /// Counts a message that was sent to the queue.
    pub(crate) fn batch(&self, pushes: usize, bytes: usize, took: Duration, confirmed: bool) {
        self.batches.inc();
        if !confirmed {
            self.failed_batches.inc();
        }
        // Both are far below 2^53, up to which a float holds every whole number.
        self.batch_pushes.observe(pushes as f64);
        self.batch_bytes.observe(bytes as f64);
        self.publish_seconds.observe_time(took);
    }

    /// Counts pushes that waited this long for the confirm of their message.
    pub(crate) fn confirmed(&self, pushes: usize, waited: Duration) {
        let pushes = u64::try_from(pushes).unwrap_or(u64::MAX);
        self.push_wait_seconds.observe_many(waited.as_secs_f64(), pushes);
    }
}

/// Counters by a label with these values.
fn by<const N: usize>(label: &'static str, values: [&'static str; N]) -> ByLabel<Counter> {
    ByLabel::new(label, values, Counter::default)
}

fn by_app(limit: usize, family: Family<AppResult, Counter>) -> ByApp<AppPushes> {
    ByApp::new(limit, move |app| {
        let of = |result| {
            let label = AppResult { app: app.to_owned(), result };
            Family::get_or_create_owned(&family, &label)
        };
        AppPushes { accepted: of("accepted"), rejected: of("rejected") }
    })
}

/// Counts a connection as open until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection(Arc<Metrics>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections.dec();
    }
}
