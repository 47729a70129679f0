//! Free TCP ports for servers that cannot be handed a listening socket.
//!
//! Between finding a free port and the server's own bind, another test could be given the same
//! one. So the UDP port of the same number, which no server of the tests uses, is bound as the
//! reservation: it excludes other tests in any process, and the kernel frees it however the
//! process ends. Ports are taken below the range that systems use for outgoing
//! connections, so that none of those takes one while its server is being restarted.

use std::{
    io,
    net::{Ipv4Addr, TcpListener, UdpSocket},
    ops::RangeInclusive,
};

use rand::RngExt;

/// Below the ephemeral ports of Linux (from 32768) and macOS (from 49152).
const RANGE: RangeInclusive<u16> = 15_000..=32_000;
/// Tries before giving up: more than that means that the range is full.
const TRIES: usize = 1000;

/// A TCP port on loopback that is reserved for this process until this is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _reservation: UdpSocket,
}

impl Port {
    /// The port number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// `127.0.0.1:port`
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.number)
    }
}

/// A port that nothing listens on and no other test is given.
pub fn free_port() -> io::Result<Port> {
    let mut refusal = None;
    for _ in 0..TRIES {
        let number = rand::rng().random_range(RANGE);
        match reserve(number) {
            Ok(port) => return Ok(port),
            Err(error) => refusal = Some(error),
        }
    }
    Err(refusal.unwrap_or_else(|| io::Error::other("no port was tried")))
}

fn reserve(number: u16) -> io::Result<Port> {
    let reservation = UdpSocket::bind((Ipv4Addr::LOCALHOST, number))?;
    TcpListener::bind((Ipv4Addr::LOCALHOST, number))?;
    Ok(Port { number, _reservation: reservation })
}
