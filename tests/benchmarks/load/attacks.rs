//! Attacks of a hostile app and of an unauthenticated client on `ingest`. They come from an address
//! of their own, as they would outside of this machine. Refusals are what the service should give
//! them, so no answer to an attack counts as an error.
//!
//! Each attack has a thread and a runtime of its own: in the runtime of the pushes that are measured
//! it would hold up the client, and not only the service.

use std::{io, net::SocketAddr, thread, time::Duration};

use anyhow::Context as _;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    runtime,
    task::JoinSet,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Producer;
use crate::setup::population;

/// Where attacks come from.
const ATTACKER: &str = "127.0.0.66:0";
/// Connections that each send a body slowly: with a body of [`ANNOUNCED`] bytes, as many as fill
/// the memory for bodies if it were reserved for what is announced.
const SLOW_BODIES: usize = 256;
/// The length of such a body: what `ingest` allows.
const ANNOUNCED: usize = 512 * 1024;
/// The time between two bytes of it.
const DRIP: Duration = Duration::from_secs(1);
/// Connections that send nothing.
const IDLE_CONNECTIONS: usize = 1000;
/// The pause before a connection that was closed is opened again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
/// Connections that register devices, one after the other.
const REGISTERING: usize = 64;

/// A running attack. It ends when it is dropped.
pub(crate) struct Attack {
    stop: DropGuard,
    thread: thread::JoinHandle<()>,
}

impl Attack {
    /// Requests that announce a large body and send a byte of it now and then.
    pub(crate) fn slow_bodies(hostile: &Producer) -> anyhow::Result<Self> {
        let head = head(hostile, "POST", &hostile.push_path(), ANNOUNCED);
        Self::start(hostile, SLOW_BODIES, move |mut stream, _| {
            let head = head.clone();
            async move {
                stream.write_all(head.as_bytes()).await?;
                let (mut reader, mut writer) = stream.split();
                let drip = async {
                    loop {
                        writer.write_all(b" ").await?;
                        tokio::time::sleep(DRIP).await;
                    }
                };
                tokio::select! {
                    ended = read_to_end(&mut reader) => ended,
                    failed = drip => failed,
                }
            }
        })
    }

    /// Connections that send nothing.
    pub(crate) fn idle_connections(hostile: &Producer) -> anyhow::Result<Self> {
        Self::start(hostile, IDLE_CONNECTIONS, |mut stream, _| async move {
            read_to_end(&mut stream).await
        })
    }

    /// Registrations of new devices, as many as the service answers.
    pub(crate) fn registrations(hostile: &Producer) -> anyhow::Result<Self> {
        let producer = hostile.clone();
        Self::start(hostile, REGISTERING, move |mut stream, number| {
            let producer = producer.clone();
            async move {
                let body = population::registration(number, None, "discard");
                let mut answer = vec![0; 4096];
                for device in 0_u64.. {
                    let path = producer.device_path(&format!("hostile-{number}-{device}"));
                    let head = head(&producer, "PUT", &path, body.len());
                    stream.write_all(format!("{head}{body}").as_bytes()).await?;
                    // An answer is smaller than the buffer, and one is asked for at a time.
                    if stream.read(&mut answer).await? == 0 {
                        break;
                    }
                }
                Ok(())
            }
        })
    }

    fn start<F>(
        hostile: &Producer,
        connections: usize,
        attack: impl Fn(TcpStream, usize) -> F + Clone + Send + 'static,
    ) -> anyhow::Result<Self>
    where
        F: Future<Output = io::Result<()>> + Send,
    {
        let target: SocketAddr = hostile.address.parse().context("the address of ingest")?;
        let from: SocketAddr = ATTACKER.parse()?;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let all = async move {
            let mut tasks = JoinSet::new();
            for number in 0..connections {
                let (attack, stopped) = (attack.clone(), stopped.clone());
                let again_and_again = async move {
                    loop {
                        if let Ok(stream) = connect(from, target).await {
                            // It ends when the service closes the connection, as it should.
                            let _ = attack(stream, number).await;
                        }
                        tokio::time::sleep(RECONNECT_PAUSE).await;
                    }
                };
                tasks.spawn(async move {
                    stopped.run_until_cancelled(again_and_again).await;
                });
            }
            while tasks.join_next().await.is_some() {}
        };
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name("attack".into());
        let thread = thread.spawn(move || runtime.block_on(all))?;
        Ok(Self { stop: stop.drop_guard(), thread })
    }

    /// Ends the attack.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        let ended = tokio::task::spawn_blocking(move || self.thread.join()).await?;
        ended.map_err(|_| io::Error::other("an attack ended badly").into())
    }
}

async fn connect(from: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(from)?;
    socket.connect(to).await
}

async fn read_to_end(stream: &mut (impl AsyncReadExt + Unpin)) -> io::Result<()> {
    let mut buffer = [0; 1024];
    while stream.read(&mut buffer).await? > 0 {}
    Ok(())
}

fn head(producer: &Producer, method: &str, path: &str, length: usize) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: {}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n",
        producer.address, producer.secret
    )
}
