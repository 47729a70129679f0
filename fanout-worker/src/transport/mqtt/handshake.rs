//! From an address to an MQTT 5 session: TCP, TLS, CONNECT and CONNACK.

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

use super::{settings::MqttSettings, url::MqttUrl};

/// How long the connection may be idle before both sides take it for dead. Half of it without a
/// packet makes the session ping.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The largest packet that a broker has reason to send to a session without subscriptions.
const MAX_INBOUND: u32 = 64 * 1024;

/// Bytes to and from a broker.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("no connection")]
    Io(#[from] std::io::Error),
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
    #[error("the host has no name that a certificate could confirm")]
    Name(#[from] rustls::pki_types::InvalidDnsNameError),
    #[error("no session within {0:?}")]
    Slow(Duration),
    #[error("the broker refused the session: {0:?}")]
    Refused(ConnectAckReason),
    #[error("the broker closed the connection during the handshake")]
    Closed,
    #[error("the broker answered with something else than CONNACK")]
    Unexpected,
    #[error("the broker does not speak MQTT 5")]
    Decode(#[from] DecodeError),
    #[error("the login does not fit into CONNECT")]
    Encode(#[from] EncodeError),
}

/// What was agreed with the broker.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) codec: Codec,
    /// What was read behind the CONNACK.
    pub(super) input: BytesMut,
    pub(super) window: NonZeroU16,
    pub(super) ping_after: Duration,
}

/// Opens a session under this client id.
pub(super) async fn connect(
    url: &MqttUrl,
    settings: &MqttSettings,
    client_id: String,
) -> Result<(Box<dyn Stream>, Terms), ConnectError> {
    let attempt = async {
        let tcp = TcpStream::connect((url.host.as_str(), url.port)).await?;
        tcp.set_nodelay(true)?;
        let mut stream: Box<dyn Stream> =
            if url.tls { Box::new(encrypt(tcp, &url.host).await?) } else { Box::new(tcp) };
        let terms = log_in(&mut stream, connect_packet(url, client_id), settings.window).await?;
        Ok((stream, terms))
    };
    let limit = settings.connect_timeout;
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

fn connect_packet(url: &MqttUrl, client_id: String) -> Connect {
    let mut connect = Connect {
        clean_start: true,
        keep_alive: u16::try_from(KEEP_ALIVE.as_secs()).unwrap_or(u16::MAX),
        client_id: client_id.into(),
        ..Connect::default()
    };
    if let Some(login) = &url.login {
        connect.username = Some(login.user.clone().into());
        connect.password = login.password.clone().map(Into::into);
    }
    connect
}

/// Sends CONNECT and reads CONNACK. The window is the smaller of ours and the broker's.
pub(super) async fn log_in(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    connect: Connect,
    window: u16,
) -> Result<Terms, ConnectError> {
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
    let window = NonZeroU16::new(window).unwrap_or(NonZeroU16::MIN).min(receive_max);
    Ok(Terms { codec, input, window, ping_after: keep_alive / 2 })
}
