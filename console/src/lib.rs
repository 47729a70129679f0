//! The admin API and the console: what operators do, over HTTP and on pages, on a listener of their own.
//!
//! Constraints it lives under:
//! - It has no logic of its own: a handler reads what the caller gave and calls a use case of [`push_operator`].
//! - It shares nothing with the service but queue and stores, so its load and its faults end there. Connections,
//!   requests, bodies and times are bounded (`server`), and a handler that panics ends its request alone.
//! - The rights of a key are compared in one place (`access`), which a page of a console asks as well.
//!
//! - `settings`: the flags
//! - `listener`, `server`: from a connection to a request
//! - `access`: keys, roles, and the callers that have them
//! - `names`: the names under which browsers may reach it
//! - `core`: what handlers use
//! - `api`: the routes of `/v1/admin/`
//! - `site`: the pages over HTTP, `pages`: what is on them, `assets`: their style sheet and scripts
//! - `sessions`: who is signed in
//! - `sampler`: looks at the service for all viewers together
//! - `draft`: a push as the fields of a form

mod access;
mod api;
mod assets;
mod core;
mod draft;
mod listener;
mod names;
mod pages;
mod sampler;
mod server;
mod sessions;
mod settings;
mod site;

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use push_broker::WebSockets;
use push_credentials::DeviceCredentials;
use push_ingest::{LocalPushes, Settings as IngestSettings};
use push_model::time::UnixMillis;
use tokio::{
    sync::{Mutex, Semaphore},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

pub use crate::{
    access::{Access, Caller, Reach, Refused},
    core::{Core, Parts},
    listener::{ListenError, Listener},
    settings::{ConsoleArgs, ConsoleSettings},
};
use crate::{names::Names, sampler::Sampler, sessions::Sessions, site::Desk};

/// The time that a stop leaves to pushes that wait for their confirm.
const PUBLISH_DEADLINE: Duration = Duration::from_secs(5);

/// What the pages need beside the [`Parts`].
#[derive(Debug)]
pub struct PageParts {
    /// The rules and limits of pushes that are sent from a page.
    pub ingest: IngestSettings,
    /// The URL of ingest, as a command on a page names it.
    pub ingest_url: String,
    /// The way of browsers to the MQTT broker, if there is one.
    pub mqtt: Option<Mqtt>,
}

/// The way of browsers to the MQTT broker.
#[derive(Debug)]
pub struct Mqtt {
    /// Issues their logins, with the URL of the broker for browsers unless it is in this program.
    pub logins: DeviceCredentials,
    /// Takes their connections, if the broker is in this program.
    pub websockets: Option<WebSockets>,
}

/// The admin API and the console, ready to serve.
#[derive(Debug)]
pub struct Console {
    listener: Listener,
    desk: Arc<Desk>,
}

impl Console {
    /// Makes it. Nothing is served before [`Console::run`].
    ///
    /// # Errors
    /// If the operating system cannot report the address of the listener.
    pub fn new(listener: Listener, parts: Parts, pages: PageParts) -> io::Result<Self> {
        let names = Names {
            public: listener.public.clone(),
            listen: listener.local_addr()?.ip(),
            is_tls: listener.tls.is_some(),
        };
        let (stores, queue) = (parts.stores.clone(), Arc::clone(&parts.queue));
        let mut mqtt = pages.mqtt;
        if let (Some(mqtt), Some(public)) = (&mut mqtt, &names.public) {
            let websockets = mqtt.websockets.take();
            mqtt.websockets = websockets.map(|of| of.with_origin(public.origin()));
        }
        let pushes = LocalPushes::new(pages.ingest, Arc::clone(&queue), stores.clone());
        let desk = Desk {
            sampler: Sampler::new(stores, queue),
            sessions: Sessions::default(),
            sent: Mutex::default(),
            streams: Arc::new(Semaphore::new(site::STREAMS)),
            stop: CancellationToken::new(),
            mqtt,
            server: pages.ingest_url,
            names,
            core: Arc::new(Core::new(parts, pushes, UnixMillis::now)),
        };
        Ok(Self { listener, desk: Arc::new(desk) })
    }

    /// Makes a URL that is valid for half an hour and works once: it signs in as an administrator. A URL that was
    /// made earlier stops working.
    ///
    /// # Errors
    /// If the operating system cannot report the address of the listener.
    pub fn sign_in_link(&self) -> io::Result<String> {
        let token = self.desk.sessions.make_link(Instant::now());
        if let Some(public) = &self.desk.names.public {
            return Ok(format!("{}/sign-in?token={token}", public.origin()));
        }
        let mut address = self.listener.local_addr()?;
        if address.ip().is_unspecified() {
            address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        Ok(format!("{}://{address}/sign-in?token={token}", self.listener.scheme()))
    }

    /// Serves until `shutdown`, then finishes the requests in work.
    ///
    /// # Errors
    /// None: what cannot be finished in time is cut off and logged.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Infallible> {
        let Self { listener, desk } = self;
        let core = Arc::clone(&desk.core);
        let router = api::router(Arc::clone(&core)).merge(site::router(Arc::clone(&desk)));
        let streams = desk.stop.clone();
        let stopping = shutdown.clone();
        let end_streams = async {
            stopping.cancelled().await;
            streams.cancel();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = server::serve(listener, router, core, shutdown) => {}
            () = end_streams => {}
            () = desk.sampler.keep_looking() => {}
            () = desk.core.pushes.keep_counts() => {}
        }
        desk.core.pushes.finish(Instant::now() + PUBLISH_DEADLINE).await;
        Ok(())
    }
}
