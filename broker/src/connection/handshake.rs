//! The beginning of a connection: its version, CONNECT, and the answer.
//!
//! Nothing is stored for a client before its login is checked: a refused CONNECT creates no session and
//! changes none of the device that it names.

use std::{num::NonZeroU16, time::Duration};

use push_model::{mqtt::MqttDevice, time::UnixMillis};
use rmqtt_codec::error::DecodeError;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::debug;

use super::link::Link;
use crate::{
    admission::Permit,
    authentication::{Login, LoginRefusal},
    clocks::Clocks,
    context::{Context, Door},
    packets::{Connect, ConnectRefusal, Packet, Welcome, Wire},
    sessions::{NotOwned, SessionOwner},
};

/// The largest packet that a device may send, in bytes: CONNECT with a token, and SUBSCRIBE.
const DEVICE_PACKET: u32 = 8 * 1024;

/// The largest packet that the worker may send, in bytes.
pub(crate) const WORKER_PACKET: u32 = 1024 * 1024;

/// The smallest Maximum Packet Size of a client, in bytes: no push fits in less. A client with a smaller
/// one would take over its session only to have all waiting messages dropped, as MQTT 5 demands (section
/// 3.1.2.11.4).
const LEAST_MAX_PACKET: u32 = 256;

/// Messages that the worker may have in flight on one connection: its window.
const WORKER_WINDOW: NonZeroU16 = NonZeroU16::new(512).unwrap();

/// Messages in flight to one device; it may ask for fewer.
const DEVICE_WINDOW: NonZeroU16 = NonZeroU16::new(128).unwrap();

/// The longest time without a packet from a client. MQTT allows 18 hours or no limit at all, and a
/// connection that vanished would keep its descriptor for that long.
const LONGEST_KEEP_ALIVE: Duration = Duration::from_hours(1);

/// A client that has logged in.
#[derive(Debug)]
pub(super) enum Client {
    Device(DeviceSession),
    /// A worker, with its keep-alive.
    Worker(Duration),
}

/// A connected device.
#[derive(Debug)]
pub(super) struct DeviceSession {
    pub(super) owner: SessionOwner,
    /// The most messages in flight to it.
    pub(super) window: NonZeroU16,
    pub(super) keep_alive: Duration,
    /// The end of its token.
    pub(super) authorised_until: UnixMillis,
    /// The longest time that its session may outlive the connection.
    pub(super) longest_keep: Duration,
    /// True if CONNECT said that the session ends with the connection, which cannot be changed later.
    pub(super) ends_with_connection: bool,
}

/// The reasons for which a handshake fails.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error("the connection ended")]
    Io(#[from] std::io::Error),
    #[error("a newer connection takes its place")]
    Displaced,
    #[error("this is not MQTT")]
    Decode(#[from] DecodeError),
    #[error("refused: {0:?}")]
    Refused(ConnectRefusal),
}

/// Reads CONNECT and encodes the answer into the link's output.
pub(super) async fn shake_hands<S: AsyncRead + AsyncWrite>(
    link: &mut Link<S>,
    door: Door,
    permit: &Permit,
    context: &Context,
) -> Result<(Wire, Client), HandshakeError> {
    let max_packet = match door {
        Door::Devices => DEVICE_PACKET,
        Door::Worker => WORKER_PACKET,
    };
    let mut wire = loop {
        match Wire::recognise(&mut link.input, max_packet)? {
            Some(wire) => break wire,
            None => link.progress().await?,
        };
    };
    let packet = loop {
        match wire.decode(&mut link.input)? {
            Some(packet) => break packet,
            None => link.progress().await?,
        };
    };
    if !permit.begin_check() {
        return Err(HandshakeError::Displaced);
    }
    let accepted = match packet {
        Packet::Connect(connect) => match check(&connect) {
            Ok(()) => log_in(&connect, door, context).await,
            Err(refusal) => Err(refusal),
        },
        _ => Err(ConnectRefusal::Malformed),
    };
    let answered = match &accepted {
        Ok((client, resumed)) => {
            wire.welcome(client.welcome(*resumed, max_packet), &mut link.output.bytes)
        }
        Err(refusal) => wire.refuse(*refusal, &mut link.output.bytes),
    };
    if let Err(error) = answered {
        // The answer fits every client whose Maximum Packet Size is not absurd.
        debug!(%error, "CONNECT cannot be answered");
        return Err(HandshakeError::Refused(ConnectRefusal::Malformed));
    }
    let (client, _) = accepted.map_err(HandshakeError::Refused)?;
    Ok((wire, client))
}

/// Refuses what no client may ask for.
fn check(connect: &Connect) -> Result<(), ConnectRefusal> {
    if connect.has_auth_method {
        Err(ConnectRefusal::AuthMethod)
    } else if connect.client_id.is_empty() {
        Err(ConnectRefusal::NoClientId)
    } else if connect.max_packet.is_some_and(|size| size < LEAST_MAX_PACKET) {
        Err(ConnectRefusal::PacketTooLarge)
    } else {
        Ok(())
    }
}

async fn log_in(
    connect: &Connect,
    door: Door,
    context: &Context,
) -> Result<(Client, bool), ConnectRefusal> {
    let login = Login {
        client_id: &connect.client_id,
        user: connect.user.as_deref().unwrap_or_default(),
        password: connect.password.as_deref().unwrap_or_default(),
    };
    let keep_alive = match connect.keep_alive {
        Duration::ZERO => LONGEST_KEEP_ALIVE,
        wanted => wanted.min(LONGEST_KEEP_ALIVE),
    };
    if door == Door::Worker {
        context.worker.check(login).map_err(refusal)?;
        return Ok((Client::Worker(keep_alive), false));
    }
    let device = connect.client_id.parse::<MqttDevice>().ok();
    let seen = device.and_then(|device| context.sessions.registration_of(&device.topic()));
    let identity = context.devices.authenticate(login, UnixMillis::now()).await.map_err(refusal)?;
    if connect.has_will {
        return Err(ConnectRefusal::NotAuthorized);
    }
    // MQTT 3.1.1 cannot say how long, so such a device gets the longest time.
    let keep = connect.keep.unwrap_or(context.longest_keep).min(context.longest_keep);
    let owner = context.sessions.own(&identity, seen, connect.clean, keep, Clocks::now()).map_err(
        |error| match error {
            NotOwned::TooMany => ConnectRefusal::TooManySessions,
            NotOwned::Outdated => ConnectRefusal::Unavailable,
        },
    )?;
    let resumed = owner.resumed();
    let session = DeviceSession {
        owner,
        window: connect.receive_max.map_or(DEVICE_WINDOW, |wanted| wanted.min(DEVICE_WINDOW)),
        keep_alive,
        authorised_until: identity.expires_at,
        longest_keep: context.longest_keep,
        ends_with_connection: connect.keep == Some(Duration::ZERO),
    };
    Ok((Client::Device(session), resumed))
}

fn refusal(refusal: LoginRefusal) -> ConnectRefusal {
    match refusal {
        LoginRefusal::BadCredentials => ConnectRefusal::BadCredentials,
        LoginRefusal::AppRemoved => ConnectRefusal::AppRemoved,
        LoginRefusal::DeviceRemoved => ConnectRefusal::DeviceRemoved,
        LoginRefusal::Expired => ConnectRefusal::TokenExpired,
        LoginRefusal::OtherDevice => ConnectRefusal::NotAuthorized,
        LoginRefusal::Unavailable => ConnectRefusal::Unavailable,
    }
}

impl HandshakeError {
    /// Returns true if it counts as a failed login. A genuine token never does, even if it has expired, its
    /// app was removed, or the client wants more than it allows: a phone retries with it until its app
    /// gets a new one, and others share its address.
    pub(super) fn is_failed_login(&self) -> bool {
        matches!(self, Self::Refused(ConnectRefusal::BadCredentials))
    }
}

impl Client {
    fn welcome(&self, resumed: bool, max_packet: u32) -> Welcome {
        let (keep, keep_alive) = match self {
            Self::Device(session) => (session.owner.keep(), session.keep_alive),
            Self::Worker(keep_alive) => (Duration::ZERO, *keep_alive),
        };
        let asks_for_registrations = matches!(self, Self::Worker(_));
        let receive_max = WORKER_WINDOW;
        Welcome { resumed, keep, keep_alive, receive_max, max_packet, asks_for_registrations }
    }
}
