//! Answers all requests: one handler for each kind of call, with the few things that it needs.
//!
//! The checks run in the order of the contract:
//!
//! | check | where |
//! |---|---|
//! | path and method | [`Route::of`] |
//! | App ID, secret | [`Logins::authenticate`] |
//! | app enabled, rate | `push`, `push::batch`, `other_call` |
//! | media type | `media_type` |
//! | size | [`RequestBody::read_for`] |
//! | JSON, fields | [`message`](crate::message) |
//!
//! Handlers: `push` (single ones and batches), `audience`, `device`, `user`, `message` (report, list and recall), and
//! [`broker_auth`](crate::broker_auth) (the questions of MQTT brokers). The description of the API is
//! files, `openapi.json` and `openapi/` beside `src`, and needs no handler. The handlers share `lines`,
//! `list_query`, `media_type`, `other_call`, `request_span`, `usage_sync` and `user_devices`. `login_report` and
//! `full_dictionaries` report at intervals what would be too much for each request.

mod audience;
mod device;
mod full_dictionaries;
mod lines;
mod list_query;
mod login_report;
mod media_type;
mod message;
mod other_call;
mod push;
mod request_span;
mod usage_sync;
mod user;
mod user_devices;

use std::{num::NonZeroU32, sync::Arc};

use bytes::Bytes;
use hyper::body::Body;
use push_boot::{engines::Stores, network::counters::Counters};
use push_model::{app::AppKey, time::UnixMillis};
use ring::rand::SystemRandom;
use tokio::{sync::Semaphore, time::Instant};
use tracing::Instrument as _;

use self::{
    audience::AudienceHandler,
    device::{CALL_COUNTERS, DEVICE_CALLS, DeviceHandler},
    full_dictionaries::FullDictionaries,
    login_report::LoginReport,
    message::MessageHandler,
    push::{BatchHandler, IdempotencyKeys, PushHandler, Sequence},
    request_span::{note_reply, request_span},
    usage_sync::UsageSync,
    user::UserHandler,
};
use crate::{
    apps::{Logins, RecentKeys, UsageLeaks},
    body::{AppMemory, BodyError, BodyMemory, RequestBody},
    broker_auth::{BrokerAuth, BrokerLogins},
    head::Head,
    index_client::{IndexClient, IndexOutage},
    metrics::{Level, Metrics, ProxyClaim},
    publisher::Publisher,
    rejection::Rejection,
    reply::{self, Reply},
    route::Route,
    sampling::Sampling,
    settings::{HttpSettings, Settings},
};

/// The handlers of all calls.
#[derive(Debug)]
pub(crate) struct Handlers {
    push: Arc<PushHandler>,
    batch: BatchHandler,
    audiences: AudienceHandler,
    devices: DeviceHandler,
    users: UserHandler,
    messages: MessageHandler,
    broker_auth: BrokerAuth,
    logins: Arc<Logins>,
    http: Arc<HttpSettings>,
    metrics: Arc<Metrics>,
    /// Decides which requests are traced; none if there are no traces.
    sampling: Option<Sampling>,
    /// Runs beside the requests.
    pub(crate) login_report: LoginReport,
    /// Runs beside the requests.
    pub(crate) usage: Arc<UsageSync>,
}

impl Handlers {
    pub(crate) fn new(
        settings: Settings,
        stores: Stores,
        publisher: Arc<Publisher>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let Settings { apps, ledger_retention: retention, device_credentials, .. } = settings;
        let http = Arc::new(settings.http);
        let memory = Arc::new(BodyMemory::new(&http));
        let level = Level::new(http.max_buffered, {
            let memory = Arc::clone(&memory);
            move || memory.used()
        });
        // Set before only if these metrics are those of another service too, which then shows its own.
        let _ = metrics.levels.body_memory.set(level);
        let Stores { index, ledger, .. } = stores;
        let outage = IndexOutage::new();
        let broker_memory = Arc::new(AppMemory::new(&memory));
        let logins =
            Logins::new(index.clone(), outage.clone(), apps.clone(), memory, Arc::clone(&metrics));
        let logins = Arc::new(logins);
        let index = Arc::new(IndexClient { index, ledger, timeout: apps.index_timeout, outage });
        let broker_logins = Arc::<BrokerLogins>::default();
        let usage = Arc::new(UsageSync {
            logins: Arc::clone(&logins),
            index: Arc::clone(&index),
            leaks: UsageLeaks::default(),
            fresh: apps.fresh,
            retention,
            metrics: Arc::clone(&metrics),
        });
        let push = Arc::new(PushHandler {
            logins: Arc::clone(&logins),
            http: Arc::clone(&http),
            rules: settings.rules,
            keys: IdempotencyKeys { index: Arc::clone(&index), recent: RecentKeys::default() },
            usage: Arc::clone(&usage),
            sequence: Sequence::default(),
            publisher,
        });
        Self {
            batch: BatchHandler { pushes: Arc::clone(&push), metrics: Arc::clone(&metrics) },
            push,
            audiences: AudienceHandler {
                logins: Arc::clone(&logins),
                index: Arc::clone(&index),
                http: Arc::clone(&http),
                rules: settings.rules,
                places: Semaphore::new(audience::COUNTS_AT_ONCE),
            },
            devices: DeviceHandler {
                logins: Arc::clone(&logins),
                index: Arc::clone(&index),
                http: Arc::clone(&http),
                credentials: device_credentials.clone(),
                over_mqtt: settings.over_mqtt,
                max_devices: apps.max_devices,
                fresh: apps.fresh,
                dictionaries_full: FullDictionaries::default(),
                metrics: Arc::clone(&metrics),
                random: SystemRandom::new(),
                calls: Counters::new(CALL_COUNTERS, NonZeroU32::new(DEVICE_CALLS), Instant::now()),
            },
            users: UserHandler { logins: Arc::clone(&logins), index: Arc::clone(&index) },
            messages: MessageHandler {
                logins: Arc::clone(&logins),
                index: Arc::clone(&index),
                usage: Arc::clone(&usage),
                retention,
                pages: Semaphore::new(message::PAGES_AT_ONCE),
            },
            broker_auth: BrokerAuth {
                settings: settings.broker_auth,
                credentials: device_credentials,
                logins: Arc::clone(&logins),
                index: Arc::clone(&index),
                memory: broker_memory,
                body_time: http.body_time(),
                failed_logins: Arc::clone(&broker_logins),
                metrics: Arc::clone(&metrics),
            },
            login_report: LoginReport {
                logins: Arc::clone(&logins),
                broker_logins,
                index,
                interval: apps.activity_interval,
            },
            usage,
            logins,
            http,
            metrics,
            sampling: settings.is_traced.then(|| Sampling::new(settings.trace_ratio)),
        }
    }

    pub(crate) fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Answers one request, without waiting for a body that the answer does not need. The rest of the body
    /// is the caller's to discard, so that the connection can take the next request, unless
    /// the answer ends the connection.
    pub(crate) async fn answer(
        &self,
        head: &Head<'_>,
        body: &mut (impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin),
    ) -> Reply {
        match request_span(self.sampling, head, || self.route_name(head)) {
            None => self.answer_request(head, body).await,
            // Boxed: few requests have a span, and its future would be part of every connection.
            Some(span) => {
                let head = Head { has_span: true, ..head.clone() };
                let answer = self.answer_request(&head, body).instrument(span.clone());
                let reply = Box::pin(answer).await;
                note_reply(&span, &reply);
                reply
            }
        }
    }

    async fn answer_request(
        &self,
        head: &Head<'_>,
        body: &mut (impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin),
    ) -> Reply {
        let begun = Instant::now();
        if head.is_claim_ignored {
            self.metrics.untrusted_proxy(ProxyClaim::Forwarded);
        }
        let mut body = RequestBody::new(body);
        let (name, result) = match self.route(head) {
            Ok(route) => (route.name(), self.handle(route, head, &mut body).await),
            Err(rejection) => (Route::NO_ROUTE, Err(rejection)),
        };
        let mut reply = self.counted(name, begun, result);
        reply.close = !self.can_keep_alive(head, &body);
        reply
    }

    /// Answers a push that comes from within the program.
    pub(crate) async fn push_locally(
        &self,
        app: &AppKey,
        user: &str,
        head: &Head<'_>,
        body: &mut (impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin),
    ) -> Reply {
        let begun = Instant::now();
        let answered = self.push.push_locally(app, user, head, &mut RequestBody::new(body)).await;
        self.counted(Route::PUSH, begun, answered)
    }

    /// Makes another count of an app's devices for a part of the program, under the bounds of audiences.
    pub(crate) async fn count_other<T>(
        &self,
        app: &AppKey,
        count: impl Future<Output = T>,
    ) -> Result<T, Rejection> {
        self.audiences.count_other(app, count).await
    }

    /// Counts an audience for a caller within the program.
    pub(crate) async fn count_locally(
        &self,
        app: &AppKey,
        body: &mut (impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin),
    ) -> Reply {
        let begun = Instant::now();
        let counted = self.audiences.count_locally(app, &mut RequestBody::new(body)).await;
        self.counted("count_audience", begun, counted)
    }

    /// Answers a request that the server has no room for. Nothing of it is looked at but its
    /// route, under which it is counted.
    pub(crate) fn refuse(&self, head: &Head<'_>, rejection: Rejection) -> Reply {
        self.counted(self.route_name(head), Instant::now(), Err(rejection))
    }

    /// Returns the memory of the app, or of the brokers, whose secret a request has.
    pub(crate) async fn memory_of_caller(&self, head: &Head<'_>) -> Option<Arc<AppMemory>> {
        let route = self.route(head).ok()?;
        let Some(app) = route.app() else { return self.broker_auth.memory_of(head) };
        let secret = head.authorization.filter(|_| head.bearer_token().is_none())?;
        let id = app.parse().ok()?;
        let caller = self.logins.verify(&id, secret, head.peer, UnixMillis::now()).await?;
        Some(Arc::clone(&caller.memory))
    }

    fn route_name(&self, head: &Head<'_>) -> &'static str {
        self.route(head).map_or(Route::NO_ROUTE, |route| route.name())
    }

    fn route<'a>(&self, head: &Head<'a>) -> Result<Route<'a>, Rejection> {
        // h2's own bound is higher than this, because it answers a larger head
        // without a body.
        if head.stream_head.is_some_and(|bytes| bytes > self.http.max_header) {
            return Err(Rejection::HeadTooLarge);
        }
        Route::of(&head.method, head.path)
    }

    async fn handle(
        &self,
        route: Route<'_>,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin>,
    ) -> Result<Reply, Rejection> {
        match route {
            Route::Push { app } => self.push.push(&app, head, body).await,
            // Boxed: its state would be part of every connection.
            Route::PushBatch { app } => Box::pin(self.batch.push(&app, head, body)).await,
            Route::CountAudience { app } => Box::pin(self.audiences.count(&app, head, body)).await,
            Route::PutDevice(device) => self.devices.put(&device, head, body).await,
            Route::GetDevice(device) => self.devices.get(&device, head).await,
            Route::DeleteDevice(device) => self.devices.delete(&device, head).await,
            // Boxed, as above.
            Route::PatchDevice(device) => Box::pin(self.devices.patch(&device, head, body)).await,
            Route::PatchDevices { app } => {
                Box::pin(self.devices.patch_many(&app, head, body)).await
            }
            Route::GetUser(user) => Box::pin(self.users.get(&user, head)).await,
            Route::DeleteUser(user) => Box::pin(self.users.delete(&user, head)).await,
            Route::ListMessages { app } => self.messages.list(&app, head).await,
            Route::GetMessage(message) => self.messages.get(&message, head).await,
            Route::RecallMessage(message) => self.messages.recall(&message, head).await,
            Route::AskedByBroker(broker, question) => {
                Ok(Box::pin(self.broker_auth.answer(broker, question, head, body)).await)
            }
            Route::Description(document) => Ok(reply::description(document)),
        }
    }

    /// Counts an answer, and writes a rejection as one.
    fn counted(
        &self,
        name: &'static str,
        begun: Instant,
        result: Result<Reply, Rejection>,
    ) -> Reply {
        let took = begun.elapsed();
        match result {
            Ok(reply) if name == Route::PUSH => {
                self.metrics.pushed(took);
                reply
            }
            Ok(reply) => {
                self.metrics.answered(name, reply.status().as_u16().into(), took);
                reply
            }
            Err(rejection) => {
                self.metrics.answered(name, rejection.number(), took);
                reply::rejected(&rejection)
            }
        }
    }

    /// Returns true if the connection can take another request, once the rest of the body is discarded. In
    /// HTTP/2 only the stream ends.
    fn can_keep_alive(
        &self,
        head: &Head<'_>,
        body: &RequestBody<'_, impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin>,
    ) -> bool {
        // A client that sent `Expect: 100-continue` was not told to send its body.
        head.stream_head.is_some()
            || body.is_read()
            || !head.expects && body.can_be_discarded(self.http.max_body)
    }
}
