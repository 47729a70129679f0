//! HTTP/2 connections in cleartext, with prior knowledge, as hyper's client has them.

use std::{error::Error, net::SocketAddr};

use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response,
    body::{Body, Bytes, Incoming},
    client::conn::http2::{Builder, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::client::{APP, RawAnswer};

/// Connects to a service.
pub async fn connect<B>(address: SocketAddr) -> SendRequest<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    connect_with(address, None).await
}

/// Connects to a service that may send so many bytes of each answer before the client reads on; by
/// default as many as hyper allows.
pub async fn connect_with<B>(address: SocketAddr, window: Option<u32>) -> SendRequest<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

/// A push of the service's app.
pub fn push(secret: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(format!("http://push/v1/message/push/{APP}"))
        .header("content-type", "application/json")
        .header("authorization", secret)
        .body(Full::new(body.into()))
        .unwrap()
}

/// The whole of an answer.
pub async fn whole(answer: Response<Incoming>) -> RawAnswer {
    let (parts, body) = answer.into_parts();
    let text = body.collect().await.unwrap().to_bytes();
    let headers = parts
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().expect("text").to_owned()));
    RawAnswer {
        http: parts.status.as_u16(),
        headers: headers.collect(),
        text: String::from_utf8(text.into()).unwrap(),
    }
}
