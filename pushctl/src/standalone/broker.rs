//! The MQTT broker inside the process: devices connect to it, the worker publishes to it.
//!
//! It is `rmqtt` with every limit set here, because several of its defaults do not suit us: it
//! turns devices away when the machine is busy, sends a message again to a device that is still
//! connected (which MQTT 5 forbids), and gives messages without expiry five minutes.
//!
//! What it keeps, it keeps in memory: sessions and the messages that wait for them end with the
//! process. It listens without TLS and without logins, so it belongs on a loopback address.
//!
//! The broker has a runtime of its own. `rmqtt` starts tasks for every connection and ends none
//! of them, so ending the runtime is how it stops.

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

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// Handshakes at a time; more wait.
const HANDSHAKES: usize = 1_000;

/// How long a device may take for its handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a device may take to receive before it is disconnected.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest packet.
const MAX_PACKET: u32 = 1024 * 1024;

/// Unacknowledged messages of one connection, in either direction. It is the worker's window.
const MAX_IN_FLIGHT: NonZeroU16 = NonZeroU16::new(512).unwrap();

/// The longest client id: an App ID, a slash and a Client ID, and room for other tools.
const MAX_CLIENT_ID: usize = 256;

/// Subscriptions of one device, and levels of a topic.
const MAX_SUBSCRIPTIONS: usize = 16;
const MAX_TOPIC_LEVELS: usize = 8;

/// The number that `rmqtt` knows its only listener by.
const LISTENER: u16 = 1;

/// How the broker is bounded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerSettings {
    /// Devices that are connected at a time.
    pub connections: usize,
    /// Messages that are kept for one device that is away; the oldest makes room for a new one.
    pub offline_messages: usize,
    /// How long a session outlives its connection at most, whatever the device asks for.
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
        /// What was asked for.
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
    /// Listens and serves. When this returns, devices can connect.
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
            let served = runtime.spawn(serve(listener, settings));
            // `serve` is ready before it is polled again: connections wait in the backlog.
            drop(served);
        }
        Ok(broker)
    }

    /// Where it listens: the port that was found if none was asked for.
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
        // Without it, a restart would have to wait for the connections of the last run.
        .reuseaddr(Some(true))
        .nodelay(true)
        .max_connections(settings.connections)
        .max_handshaking_limit(HANDSHAKES)
        .handshake_timeout(HANDSHAKE_TIMEOUT)
        .send_timeout(SEND_TIMEOUT)
        .max_packet_size(MAX_PACKET)
        .max_inflight(MAX_IN_FLIGHT)
        .max_mqueue_len(settings.offline_messages)
        .mqueue_rate_limit(NonZeroU32::MAX, Duration::from_secs(1))
        .max_clientid_len(MAX_CLIENT_ID)
        .max_subscriptions(MAX_SUBSCRIPTIONS)
        .max_topic_levels(MAX_TOPIC_LEVELS)
        // MQTT 3.1.1 devices cannot ask for an expiry; they get the longest.
        .session_expiry_interval(settings.session_expiry)
        .max_session_expiry_interval(settings.session_expiry)
        // Zero: a message is sent again only when its device reconnects (MQTT 5, section 4.4),
        // and one without an expiry of its own does not expire.
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
    let nobody_listens = Box::new(NobodyListens { context: context.clone() });
    hooks.add(Type::MessagePublishCheckAcl, nobody_listens).await;
    hooks.start().await;
    if let Err(error) =
        MqttServer::new(context).listener_by_id(listener, LISTENER).build().run().await
    {
        tracing::error!(%error, "the MQTT broker stopped");
    }
}

/// Answers a PUBLISH that nobody subscribed to with reason 0x10, as MQTT 5 allows a broker to:
/// the ledger then says "no subscriber" instead of "sent".
struct NobodyListens {
    context: ServerContext,
}

#[async_trait]
impl Handler for NobodyListens {
    async fn hook(&self, parameter: &Parameter, accumulated: Option<HookResult>) -> ReturnType {
        let Parameter::MessagePublishCheckAcl(_, publish) = parameter else {
            return (true, accumulated);
        };
        let router = self.context.extends.router().await;
        // Devices subscribe to their own topic, so the costlier search for filters with
        // wildcards is needed for the others only.
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

/// Raises the process's limit of open files towards what the connections need. If it stays too
/// low, the devices beyond it wait to be accepted, so this is no error.
fn allow_open_files(connections: usize) {
    /// What the rest of the process may need.
    const OTHERS: u64 = 1024;
    let wanted = (connections as u64).saturating_add(OTHERS);
    match rlimit::increase_nofile_limit(wanted) {
        Ok(limit) => debug!(limit, wanted, "open files"),
        Err(error) => debug!(%error, wanted, "the limit of open files stays as it is"),
    }
}
