//! People who watch the page "Now" of the console: signed in, each with a stream of events that is read and
//! discarded, and that is asked for again when it ends, as a browser does.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use push_tests::{eventually, free_port, service::Program, stack::Stack};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

/// The longest wait for the first event of all viewers.
const PATIENCE: Duration = Duration::from_secs(30);
/// The read buffer of a viewer, in bytes: more than one event.
const BUFFER: usize = 64 * 1024;
/// The end of a chunked answer.
const END: &[u8] = b"\r\n0\r\n\r\n";

/// The console of a stack, and a session there.
pub(crate) struct Console {
    program: Program,
    address: String,
    cookie: String,
}

impl Console {
    /// Starts it, and signs in with a new key.
    pub(crate) async fn start(stack: &Stack) -> anyhow::Result<Self> {
        let command = ["admin-key", "add", "viewer", "--role", "viewer", "--json"];
        let made: Value = serde_json::from_str(&stack.pushctl(&command).await)?;
        let key = made["key"].as_str().context("no admin key")?;
        let port = free_port()?;
        let address = port.address();
        let flags = [&["console"], &stack.engines()[..], &["--admin-listen", &address]].concat();
        let program = Program::start_ready("pushctl", &flags).await;
        let cookie = sign_in(&address, key).await?;
        Ok(Self { program, address, cookie })
    }

    /// Opens the page so many times, and waits for as many events as there are viewers. They leave when the handle
    /// is dropped.
    pub(crate) async fn watch(&self, count: usize) -> anyhow::Result<Viewers> {
        let Self { address, cookie, .. } = self;
        let request = format!(
            "GET /events/now HTTP/1.1\r\nhost: {address}\r\ncookie: {cookie}\r\nhx-request: true\r\n\r\n"
        );
        let (mut tasks, received) = (JoinSet::new(), Arc::new(AtomicU64::new(0)));
        for _ in 0..count {
            let stream = TcpStream::connect(address).await?;
            tasks.spawn(follow(stream, request.clone(), Arc::clone(&received)));
        }
        let count = count as u64;
        eventually("the viewers see the page", PATIENCE, async || {
            let received = received.load(Ordering::Relaxed);
            if received < count { Err(format!("{received} events")) } else { Ok(()) }
        })
        .await;
        received.store(0, Ordering::Relaxed);
        Ok(Viewers { tasks, received, count })
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        ensure!(self.program.stop().await.success(), "the console did not stop well");
        Ok(())
    }
}

/// Signs in, and returns the cookie of the session.
async fn sign_in(address: &str, key: &str) -> anyhow::Result<String> {
    let form = format!("key={key}");
    let request = format!(
        "POST /sign-in HTTP/1.1\r\nhost: {address}\r\nsec-fetch-site: same-origin\r\nconnection: close\r\n\
         content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{form}",
        form.len()
    );
    let (mut stream, mut answer) = (TcpStream::connect(address).await?, String::new());
    stream.write_all(request.as_bytes()).await?;
    stream.read_to_string(&mut answer).await?;
    let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = cookie.and_then(|cookie| cookie.split(';').next());
    Ok(cookie.with_context(|| format!("the sign-in was answered {answer}"))?.to_owned())
}

/// Open pages.
pub(crate) struct Viewers {
    tasks: JoinSet<anyhow::Result<()>>,
    received: Arc<AtomicU64>,
    count: u64,
}

impl Viewers {
    /// Checks that each got so many events, on average, and lets them leave.
    pub(crate) fn leave(mut self, events: u64) -> anyhow::Result<()> {
        if let Some(ended) = self.tasks.try_join_next() {
            ended??;
        }
        let received = self.received.load(Ordering::Relaxed);
        ensure!(
            received >= events * self.count,
            "{} viewers received {received} events in place of {events} each",
            self.count
        );
        Ok(())
    }
}

async fn follow(
    mut stream: TcpStream,
    request: String,
    received: Arc<AtomicU64>,
) -> anyhow::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        stream.write_all(request.as_bytes()).await?;
        let mut is_first = true;
        loop {
            let read = stream.read(&mut buffer).await?;
            let Some(part @ [_, ..]) = buffer.get(..read) else {
                bail!("a stream of events was cut")
            };
            ensure!(!is_first || part.starts_with(b"HTTP/1.1 200"), "{}", part.escape_ascii());
            is_first = false;
            let lines = part.split(|byte| *byte == b'\n');
            let events = lines.filter(|line| line.starts_with(b"data: ")).count();
            received.fetch_add(events as u64, Ordering::Relaxed);
            if part.ends_with(END) || part == &END[2..] {
                break;
            }
        }
    }
}
