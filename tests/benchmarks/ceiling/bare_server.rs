//! The ceiling of `ingest`: a hyper server that reads the same requests, parses the same JSON into
//! a struct like the real one, answers as many bytes, and does nothing else.
//!
//! It runs as a process of its own, with the runtime and the socket options of `ingest`.

use std::{convert::Infallible, net::SocketAddr, process::ExitCode};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use push_boot::runtime;
use serde::Deserialize;
use tokio::net::TcpListener;

/// As long as the real answer.
const ANSWER: &[u8] = br#"{"status":200,"message":"OK","result":{"message_id":"01890000-0000-7000-8000-00000000000a"}}"#;

#[derive(Deserialize)]
#[allow(dead_code, reason = "parsed, which is what is measured")]
struct Push {
    #[serde(rename = "type")]
    kind: u8,
    time_to_live: u64,
    condition: Condition,
    notification: Notification,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "parsed, which is what is measured")]
struct Condition {
    #[serde(rename = "type")]
    kind: u8,
    client_ids: Vec<String>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "parsed, which is what is measured")]
struct Notification {
    notification_type: Option<u8>,
    title: Option<String>,
    desc: Option<String>,
    open_type: Option<u8>,
    open_content: Option<String>,
}

/// Serves until the process is ended.
pub(crate) fn run(address: SocketAddr) -> anyhow::Result<ExitCode> {
    runtime::start(runtime::default_threads())?.block_on(serve(address))
}

async fn serve(address: SocketAddr) -> anyhow::Result<ExitCode> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            // An error is the end of the connection, also when the client closes it.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service_fn(answer))
                .await;
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let push = match request.into_body().collect().await {
        Ok(body) => serde_json::from_slice::<Push>(&body.to_bytes()).ok(),
        Err(_) => None,
    };
    let mut response = Response::new(Full::new(Bytes::from_static(ANSWER)));
    if push.is_none() {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
