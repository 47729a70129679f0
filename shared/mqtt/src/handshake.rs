//! Opening an MQTT 5 session: TCP, TLS, CONNECT and CONNACK.

#[cfg(test)]
mod fuzz;

use std::{num::NonZeroU16, sync::Arc, time::Duration};

use bytes::BytesMut;
use rmqtt_codec::{
    error::{DecodeError, EncodeError},
    v5::{Codec, Connect, ConnectAck, ConnectAckReason, Packet},
};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{self, ClientConfig, crypto::ring, pki_types::ServerName},
};
use tokio_util::codec::{Decoder, Encoder};

use super::url::MqttUrl;

/// The MQTT keep-alive: how long a connection may be silent before both sides consider it dead. The
/// session sends a ping after half of it without a packet.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The largest packet that is read from a broker, in bytes: far larger than any push.
const MAX_INBOUND: u32 = 1024 * 1024;

/// Bytes to and from a broker.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The broker cannot be reached.
    #[error("no connection")]
    Io(#[from] std::io::Error),
    /// The certificates of this machine cannot be used.
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
    /// The host is not a name that a certificate can be checked against.
    #[error("the host has no name that a certificate could confirm")]
    Name(#[from] rustls::pki_types::InvalidDnsNameError),
    /// The broker or the network is too slow.
    #[error("no session within {0:?}")]
    Slow(Duration),
    /// The broker refused in CONNACK.
    #[error("the broker refused the session: {0:?}")]
    Refused(ConnectAckReason),
    /// The broker closed the connection.
    #[error("the broker closed the connection during the handshake")]
    Closed,
    /// The peer is no broker.
    #[error("the broker answered with something else than CONNACK")]
    Unexpected,
    /// The peer is no broker, or one that does not support MQTT 5.
    #[error("the broker does not speak MQTT 5")]
    Decode(#[from] DecodeError),
    /// User or password are longer than MQTT allows.
    #[error("the login does not fit into CONNECT")]
    Encode(#[from] EncodeError),
}

/// What the handshake agreed on.
#[derive(Debug)]
pub struct SessionParams {
    /// Reads and writes packets within the broker's limits.
    pub codec: Codec,
    /// Bytes that were read behind the CONNACK.
    pub input: BytesMut,
    /// Whether the broker had kept this session.
    pub session_present: bool,
    /// The broker's Receive Maximum: how many messages may be sent without an acknowledgement.
    pub receive_max: NonZeroU16,
    /// How long nothing was sent when a ping is due.
    pub ping_after: Duration,
}

/// Opens the session that `wanted` describes; this function adds login and keep-alive.
///
/// # Errors
/// If there is no session within `limit`, or at all.
pub async fn connect(
    url: &MqttUrl,
    limit: Duration,
    wanted: Connect,
) -> Result<(Box<dyn Stream>, SessionParams), ConnectError> {
    let attempt = async {
        let tcp = TcpStream::connect((url.host.as_str(), url.port)).await?;
        tcp.set_nodelay(true)?;
        let mut stream: Box<dyn Stream> =
            if url.tls { Box::new(encrypt(tcp, &url.host).await?) } else { Box::new(tcp) };
        let terms = log_in(&mut stream, with_login(wanted, url)).await?;
        Ok((stream, terms))
    };
    tokio::time::timeout(limit, attempt).await.unwrap_or(Err(ConnectError::Slow(limit)))
}

async fn encrypt(
    tcp: TcpStream,
    host: &str,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, ConnectError> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_platform_verifier()?
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned())?;
    Ok(TlsConnector::from(Arc::new(config)).connect(name, tcp).await?)
}

fn with_login(mut wanted: Connect, url: &MqttUrl) -> Connect {
    wanted.keep_alive = u16::try_from(KEEP_ALIVE.as_secs()).unwrap_or(u16::MAX);
    if let Some(login) = &url.login {
        wanted.username = Some(login.user.clone().into());
        wanted.password = login.password.clone().map(Into::into);
    }
    wanted
}

/// Sends CONNECT and reads CONNACK.
async fn log_in(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    connect: Connect,
) -> Result<SessionParams, ConnectError> {
    let mut codec = Codec::new(MAX_INBOUND, 0);
    let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
    codec.encode(Packet::Connect(Box::new(connect)), &mut output)?;
    stream.write_all_buf(&mut output).await?;
    stream.flush().await?;
    let packet = loop {
        if let Some((packet, _)) = codec.decode(&mut input)? {
            break packet;
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Err(ConnectError::Closed);
        }
    };
    let Packet::ConnectAck(ack) = packet else { return Err(ConnectError::Unexpected) };
    let ConnectAck { reason_code, receive_max, max_packet_size, server_keepalive_sec, .. } = *ack;
    if reason_code != ConnectAckReason::Success {
        return Err(ConnectError::Refused(reason_code));
    }
    if let Some(size) = max_packet_size {
        codec.set_max_outbound_size(size);
    }
    let keep_alive = match server_keepalive_sec {
        Some(seconds @ 1..) => Duration::from_secs(seconds.into()).min(KEEP_ALIVE),
        _ => KEEP_ALIVE,
    };
    let session_present = ack.session_present;
    Ok(SessionParams { codec, input, session_present, receive_max, ping_after: keep_alive / 2 })
}
