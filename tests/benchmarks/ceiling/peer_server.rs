//! Starts a server to compare `ingest` with, as a process of its own.

use std::time::Duration;

use push_tests::{
    free_port,
    process::{Output, Process},
};
use tokio::net::TcpStream;

use crate::load::Producer;

/// Deadline for it to listen.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A running server and a producer that puts the same load on it as on `ingest`.
pub(crate) struct PeerServer {
    pub(crate) process: Process,
    pub(crate) producer: Producer,
}

impl PeerServer {
    /// Starts this program with the flags for an address, and waits until it listens there.
    pub(crate) async fn start(
        like: &Producer,
        flags: impl Fn(&str) -> Vec<String>,
    ) -> anyhow::Result<Self> {
        let port = free_port()?;
        let mut command = std::process::Command::new(std::env::current_exe()?);
        command.args(flags(&port.address()));
        let process = Process::spawn(&command, Output::Inherited, None)?;
        push_tests::eventually("the peer server listens", START_TIMEOUT, async || {
            TcpStream::connect(port.address()).await.map_err(|error| error.to_string())
        })
        .await;
        Ok(Self { process, producer: Producer { address: port.address(), ..like.clone() } })
    }
}
