//! The ceiling of a broadcast over FCM: a program that sends the same requests with hyper's HTTP/2 client,
//! and does nothing else.
//!
//! It runs as a process of its own with the runtime of `fanout-worker`, as the raw MQTT client does.

use std::{net::SocketAddr, process::ExitCode};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use clap::Args;
use futures::{StreamExt as _, stream::FuturesUnordered};
use http::{
    HeaderValue, Request,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use push_boot::runtime;
use tokio::{
    net::TcpStream,
    process::Command,
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::{
    load::{
        broadcasts,
        phone_provider::{BEFORE_TOKEN, PhoneProvider, fcm_token},
    },
    measure::cpu_time::CpuMeter,
};

/// The requests in flight, over all connections: a worker's default.
pub(crate) const WINDOW: usize = 1000;
/// As long as the access tokens that Google issues.
const ACCESS_TOKEN: [u8; 256] = [b'x'; 256];

/// The hidden flags of the program.
#[derive(Debug, Args)]
pub(crate) struct RawHttp2Client {
    /// Be the raw client that a broadcast over FCM is compared with
    #[arg(long, hide = true, requires_all = ["raw_requests", "raw_connections", "raw_body"])]
    raw_http2: Option<SocketAddr>,
    /// Number of requests that it sends
    #[arg(long, hide = true)]
    raw_requests: Option<usize>,
    /// Number of its connections
    #[arg(long, hide = true)]
    raw_connections: Option<usize>,
    /// The body of a request
    #[arg(long, hide = true)]
    raw_body: Option<String>,
}

/// What the program found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawRate {
    /// Requests a second.
    pub(crate) rate: f64,
    /// Processor time of one, in microseconds.
    pub(crate) processor: f64,
}

/// Starts the program, which sends requests like the last that this provider was sent.
pub(crate) async fn measure(
    provider: &PhoneProvider,
    requests: usize,
    connections: usize,
) -> anyhow::Result<RawRate> {
    let body = String::from_utf8(provider.body().to_vec())?;
    let (address, requests) = (provider.address().to_string(), requests.to_string());
    let output = Command::new(std::env::current_exe()?)
        .args(["--raw-http2", &address, "--raw-requests", &requests, "--raw-body", &body])
        .args(["--raw-connections", &connections.to_string()])
        .kill_on_drop(true)
        .output();
    let output =
        timeout(broadcasts::TIMEOUT, output).await.context("the raw client is too slow")??;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "the raw client: {}", String::from_utf8_lossy(&output.stderr));
    let said = text.trim().split_once(' ');
    let (rate, processor) = said.with_context(|| format!("the raw client said {text:?}"))?;
    Ok(RawRate { rate: rate.parse()?, processor: processor.parse()? })
}

impl RawHttp2Client {
    /// Runs the program if the flags ask for it.
    pub(crate) fn run(&self) -> Option<anyhow::Result<ExitCode>> {
        let ((address, requests), connections) =
            self.raw_http2.zip(self.raw_requests).zip(self.raw_connections)?;
        let body = self.raw_body.as_deref()?;
        Some(send_all(address, requests, connections, body))
    }
}

fn send_all(
    address: SocketAddr,
    requests: usize,
    connections: usize,
    body: &str,
) -> anyhow::Result<ExitCode> {
    let rest = body.strip_prefix(BEFORE_TOKEN).context("a body without a token")?;
    let rest: &'static str = rest.get(fcm_token(0).len()..).unwrap_or_default().to_owned().leak();
    let measure = measure_rate(address, requests, connections, rest);
    let RawRate { rate, processor } =
        runtime::start(runtime::default_threads())?.block_on(measure)?;
    println!("{rate} {processor}");
    Ok(ExitCode::SUCCESS)
}

async fn measure_rate(
    address: SocketAddr,
    requests: usize,
    connections: usize,
    rest: &'static str,
) -> anyhow::Result<RawRate> {
    let mut senders = Vec::new();
    for _ in 0..connections {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        senders.push(sender);
    }
    let (started, meter) = (Instant::now(), CpuMeter::start([std::process::id()]));
    let mut tasks = JoinSet::new();
    for (first, sender) in senders.into_iter().enumerate() {
        tasks.spawn(async move {
            let mut numbers = (first..requests).step_by(connections);
            let mut in_flight = FuturesUnordered::new();
            loop {
                while in_flight.len() < WINDOW / connections
                    && let Some(number) = numbers.next()
                {
                    in_flight.push(send(sender.clone(), address, number, rest));
                }
                match in_flight.next().await {
                    Some(sent) => sent?,
                    None => return anyhow::Ok(()),
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let rate = requests as f64 / started.elapsed().as_secs_f64();
    let [processor] = meter.per_request(requests as f64).unwrap_or([f64::NAN]);
    Ok(RawRate { rate, processor })
}

async fn send(
    mut sender: http2::SendRequest<Full<Bytes>>,
    address: SocketAddr,
    number: usize,
    rest: &str,
) -> anyhow::Result<()> {
    let body = [BEFORE_TOKEN, &fcm_token(number), rest].concat();
    let mut authorization = HeaderValue::from_bytes(&ACCESS_TOKEN)?;
    authorization.set_sensitive(true);
    let request = Request::post(format!("http://{address}/v1/projects/project/messages:send"))
        .header(AUTHORIZATION, authorization)
        .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .body(Full::from(body))?;
    sender.ready().await?;
    let answer = sender.send_request(request).await?;
    ensure!(answer.status().is_success(), "the server answered {}", answer.status());
    answer.into_body().collect().await?;
    Ok(())
}
