//! The embedded MQTT broker: devices connect to it, the worker publishes to it.
//!
//! It is `rmqtt` with every limit set here, because several of its defaults do not fit: it refuses
//! devices when the machine is busy, sends a message again to a device that is still connected
//! (which MQTT 5 forbids), and expires messages without an expiry after five minutes.
//!
//! Sessions and the messages that wait for them are in memory only and end with the process. The
//! broker listens without TLS and without authentication, so it belongs on a loopback address.
//!
//! The broker has a runtime of its own: `rmqtt` starts tasks for every connection and never ends
//! them, so the only way to stop it is to shut the runtime down.

use std::{
    io,
    net::SocketAddr,
    num::{NonZeroU16, NonZeroU32},
    time::Duration,
};

use async_trait::async_trait;
use rmqtt::{
    codec::v5::PublishAckReason,
    context::ServerContext,
    hook::{Handler, HookResult, Parameter, ReturnType, Type},
    net::{Builder, Listener},
    server::MqttServer,
    types::{PublishAclResult, PublishResult},
};
use tokio::runtime::Runtime;
use tracing::debug;

/// The listen backlog: connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// Concurrent handshakes; further connections wait.
const MAX_HANDSHAKES: usize = 1_000;

/// How long a device may take for its handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a write to a device may block before the device is disconnected.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest packet, in bytes.
const MAX_PACKET: u32 = 1024 * 1024;

/// Unacknowledged messages of one connection, in either direction. For the worker's connections it
/// is their window.
const MAX_IN_FLIGHT: NonZeroU16 = NonZeroU16::new(512).unwrap();

/// The longest MQTT client id: an App ID, a slash and a Client ID, with room for those of other
/// tools.
const MAX_CLIENT_ID: usize = 256;

/// Subscriptions of one device, and levels of a topic.
const MAX_SUBSCRIPTIONS: usize = 16;
const MAX_TOPIC_LEVELS: usize = 8;

/// The id of the only listener within `rmqtt`.
const LISTENER: u16 = 1;

/// The limits of the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerSettings {
    /// Concurrent connections of devices.
    pub connections: usize,
    /// Messages kept for one device that is offline; beyond that a new one replaces the oldest.
    pub offline_messages: usize,
    /// The longest time that a session outlives its connection; a device may ask for less.
    pub session_expiry: Duration,
}

impl Default for BrokerSettings {
    fn default() -> Self {
        Self {
            connections: 100_000,
            offline_messages: 1_000,
            session_expiry: Duration::from_hours(7 * 24),
        }
    }
}

/// Why the broker did not start.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The address is taken, or not one of this machine.
    #[error("cannot listen for MQTT on {address}")]
    Listen {
        /// The address from the settings.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The operating system gave no threads.
    #[error("cannot start the threads of the MQTT broker")]
    Runtime(#[source] io::Error),
}

/// A running broker. It stops when dropped.
#[derive(Debug)]
pub struct Broker {
    address: SocketAddr,
    /// Always there until [`Drop`] takes it.
    runtime: Option<Runtime>,
}

impl Broker {
    /// Starts listening and serving. When this returns, devices can connect.
    ///
    /// # Errors
    /// If the address cannot be listened on; then nothing was started.
    pub async fn start(listen: SocketAddr, settings: BrokerSettings) -> Result<Self, BrokerError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name("mqtt-broker")
            .enable_all()
            .build()
            .map_err(BrokerError::Runtime)?;
        let mut broker = Self { address: listen, runtime: Some(runtime) };
        allow_open_files(settings.connections);
        let failed =
            |source: rmqtt::Error| BrokerError::Listen { address: listen, source: source.into() };
        let listener = {
            let _on_its_runtime = broker.runtime.as_ref().map(Runtime::enter);
            listener(listen, &settings).map_err(failed)?
        };
        broker.address = listener.local_addr().map_err(failed)?;
        if let Some(runtime) = &broker.runtime {
            // Detached: it ends with the runtime. Until it accepts, connections wait in the
            // backlog.
            drop(runtime.spawn(serve(listener, settings)));
        }
        Ok(broker)
    }

    /// The address it listens on, with the actual port if the settings say 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn listener(address: SocketAddr, settings: &BrokerSettings) -> Result<Listener, rmqtt::Error> {
    Builder::new()
        .name("devices")
        .laddr(address)
        .backlog(BACKLOG)
        // Without it, a restart fails while connections of the last run are in TIME_WAIT.
        .reuseaddr(Some(true))
        .nodelay(true)
        .max_connections(settings.connections)
        .max_handshaking_limit(MAX_HANDSHAKES)
        .handshake_timeout(HANDSHAKE_TIMEOUT)
        .send_timeout(SEND_TIMEOUT)
        .max_packet_size(MAX_PACKET)
        .max_inflight(MAX_IN_FLIGHT)
        .max_mqueue_len(settings.offline_messages)
        .mqueue_rate_limit(NonZeroU32::MAX, Duration::from_secs(1))
        .max_clientid_len(MAX_CLIENT_ID)
        .max_subscriptions(MAX_SUBSCRIPTIONS)
        .max_topic_levels(MAX_TOPIC_LEVELS)
        // MQTT 3.1.1 devices cannot ask for an expiry, so they get the maximum.
        .session_expiry_interval(settings.session_expiry)
        .max_session_expiry_interval(settings.session_expiry)
        // Zero turns both off: a message is sent again only when its device reconnects (MQTT 5,
        // section 4.4), and one without an expiry does not expire.
        .message_retry_interval(Duration::ZERO)
        .message_expiry_interval(Duration::ZERO)
        .bind()?
        .tcp()
}

async fn serve(listener: Listener, settings: BrokerSettings) {
    let context = ServerContext::new()
        .busy_check_enable(false)
        .mqtt_max_sessions(isize::try_from(settings.connections).unwrap_or(isize::MAX))
        .build()
        .await;
    let hooks = context.extends.hook_mgr().register();
    let hook = Box::new(NoSubscriberHook { context: context.clone() });
    hooks.add(Type::MessagePublishCheckAcl, hook).await;
    hooks.start().await;
    if let Err(error) =
        MqttServer::new(context).listener_by_id(listener, LISTENER).build().run().await
    {
        tracing::error!(%error, "the MQTT broker stopped");
    }
}

/// Answers a PUBLISH without matching subscribers with reason code 0x10, as MQTT 5 allows (section
/// 3.4.2.1), so that the ledger counts "no subscriber" instead of "sent".
struct NoSubscriberHook {
    context: ServerContext,
}

#[async_trait]
impl Handler for NoSubscriberHook {
    async fn hook(&self, parameter: &Parameter, accumulated: Option<HookResult>) -> ReturnType {
        let Parameter::MessagePublishCheckAcl(_, publish) = parameter else {
            return (true, accumulated);
        };
        let router = self.context.extends.router().await;
        // Devices subscribe to their exact topic, which is a cheap lookup. Only without one are
        // filters with wildcards searched.
        if router.relations().contains_key(&publish.topic)
            || router.get(&publish.topic).await.is_ok_and(|routes| !routes.is_empty())
        {
            return (true, accumulated);
        }
        let answer =
            PublishResult::reason_code(PublishAckReason::NoMatchingSubscribers, None, false);
        (false, Some(HookResult::PublishAclResult(PublishAclResult(answer))))
    }
}

/// Raises the process's limit of open files towards what the connections need. A limit that stays
/// lower is no error: the devices beyond it wait to be accepted.
fn allow_open_files(connections: usize) {
    /// Open files of the rest of the process.
    const OTHER_FILES: u64 = 1024;
    let wanted = (connections as u64).saturating_add(OTHER_FILES);
    match rlimit::increase_nofile_limit(wanted) {
        Ok(limit) => debug!(limit, wanted, "open files"),
        Err(error) => debug!(%error, wanted, "the limit of open files stays as it is"),
    }
}
