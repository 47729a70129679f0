//! The part of a connection after the login, which is the same for every client. Packets are answered and
//! waiting messages are sent. The connection ends when one side ends it, or when the client is silent for
//! too long or reads nothing. A [`Role`] says what a client may do.

use std::{convert::Infallible, time::Duration};

use rmqtt_codec::v5::DisconnectReasonCode;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    end::End,
    link::{Event, Link},
    output::Output,
};
use crate::packets::{self, Packet, Wire};

/// The rights of one kind of client, and its messages.
pub(super) trait Role {
    /// The size of one read, in bytes; 0 leaves it to the buffer.
    const READ: usize;

    /// Handles a packet of the client and encodes the answer.
    fn receive(&mut self, packet: Packet, wire: &mut Wire, output: &mut Output) -> Result<(), End>;

    /// Encodes waiting messages, as far as the client and the network take them.
    fn send(&mut self, wire: &mut Wire, output: &mut Output) -> Result<(), End>;

    /// Returns the time until which the client may stay.
    fn authorised_until(&self) -> Option<Instant>;

    /// Resolves when there may be something to send, with an error if the connection has to end.
    async fn changed(&mut self) -> Result<(), End>;
}

/// Serves a client until its connection ends.
pub(super) async fn converse<S: AsyncRead + AsyncWrite>(
    link: &mut Link<S>,
    wire: &mut Wire,
    role: &mut impl Role,
    keep_alive: Duration,
    stop: &CancellationToken,
) -> End {
    match serve(link, wire, role, keep_alive, stop).await {
        Err(end) => end,
    }
}

async fn serve<S: AsyncRead + AsyncWrite, R: Role>(
    link: &mut Link<S>,
    wire: &mut Wire,
    role: &mut R,
    keep_alive: Duration,
    stop: &CancellationToken,
) -> Result<Infallible, End> {
    let until = role.authorised_until();
    let deadline = sleep_until(link.silent_at(keep_alive));
    tokio::pin!(deadline);
    // A client need not wait for CONNACK (MQTT 5, section 3.1.4), so packets may have come with CONNECT.
    receive(link, wire, role)?;
    loop {
        role.send(wire, &mut link.output)?;
        link.input.reserve(R::READ);
        let silent = link.silent_at(keep_alive);
        let next = [until, link.give_up_at()].into_iter().flatten().fold(silent, Instant::min);
        // The timer is moved back only when it fires, because nearly every packet extends the deadline.
        if next < deadline.deadline() {
            deadline.as_mut().reset(next);
        }
        tokio::select! {
            event = link.progress() => match event? {
                Event::Read => receive(link, wire, role)?,
                Event::Wrote => {}
            },
            changed = role.changed() => changed?,
            () = &mut deadline => {
                let now = Instant::now();
                if until.is_some_and(|until| until <= now) {
                    return Err(End::Reason(DisconnectReasonCode::NotAuthorized));
                } else if silent <= now {
                    return Err(End::Reason(DisconnectReasonCode::KeepAliveTimeout));
                } else if link.give_up_at().is_some_and(|end| end <= now) {
                    return Err(End::Stalled);
                }
                deadline.as_mut().reset(next);
            }
            () = stop.cancelled() => {
                return Err(End::Reason(DisconnectReasonCode::ServerShuttingDown));
            }
        }
    }
}

/// Handles the packets that have arrived.
fn receive<S>(link: &mut Link<S>, wire: &mut Wire, role: &mut impl Role) -> Result<(), End> {
    loop {
        match wire.decode(&mut link.input) {
            Ok(Some(packet)) => role.receive(packet, wire, &mut link.output)?,
            Ok(None) => return Ok(()),
            Err(error) => return Err(End::Reason(packets::unreadable(&error))),
        }
    }
}
