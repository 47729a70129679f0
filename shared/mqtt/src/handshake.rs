//! Opening an MQTT 5 session: TCP, TLS, CONNECT and CONNACK.

#[cfg(test)]
mod fuzz;

use std::{io, num::NonZeroU16, time::Duration};

use bytes::BytesMut;
use push_tls::{
    FileError,
    client::{ClientFiles, ClientTls},
    failure::TlsFailure,
    tokio_rustls::client::TlsStream,
};
use rmqtt_codec::{
    error::{DecodeError, EncodeError},
    v5::{Codec, Connect, ConnectAck, ConnectAckReason, Packet, UserProperties},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
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

/// The reasons why there is no session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The broker cannot be reached.
    #[error("no connection")]
    Io(#[source] io::Error),
    /// The certificates of this machine cannot be used.
    #[error("TLS cannot be set up")]
    TlsFiles(#[from] FileError),
    /// Broker and client do not trust each other, or the broker does not speak TLS.
    #[error("no TLS connection")]
    Tls(#[source] TlsFailure),
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
    #[error("the broker answered with a packet other than CONNACK")]
    Unexpected,
    /// The peer is no broker, or one that does not support MQTT 5.
    #[error("the broker does not speak MQTT 5")]
    Decode(#[from] DecodeError),
    /// The user or the password is longer than MQTT allows.
    #[error("the login does not fit into CONNECT")]
    Encode(#[from] EncodeError),
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        TlsFailure::of(&error).map_or(Self::Io(error), Self::Tls)
    }
}

/// The result of the handshake.
#[derive(Debug)]
pub struct SessionParams {
    /// Reads and writes packets within the broker's limits.
    pub codec: Codec,
    /// Bytes that were read behind the CONNACK.
    pub input: BytesMut,
    /// True if the broker had kept this session.
    pub session_present: bool,
    /// The broker's Receive Maximum: how many messages may be sent without an acknowledgement.
    pub receive_max: NonZeroU16,
    /// The time without a packet after which a ping is due.
    pub ping_after: Duration,
    /// The user properties of the CONNACK.
    pub user_properties: UserProperties,
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
            if url.tls { Box::new(encrypt(tcp, url).await?) } else { Box::new(tcp) };
        let terms = log_in(&mut stream, with_login(wanted, url)).await?;
        Ok((stream, terms))
    };
    match tokio::time::timeout(limit, attempt).await {
        // The alert with which a broker refuses a certificate can be lost behind our CONNECT.
        Ok(Err(ConnectError::Io(error))) if let Some(tls) = &url.client_tls => {
            let probe = tls.probe((&url.host, url.port));
            let probed = tokio::time::timeout(limit, probe).await.ok().and_then(Result::err);
            let failure = probed.and_then(|error| TlsFailure::of(&error));
            Err(failure.map_or(ConnectError::Io(error), ConnectError::Tls))
        }
        Ok(result) => result,
        Err(_) => Err(ConnectError::Slow(limit)),
    }
}

async fn encrypt(tcp: TcpStream, url: &MqttUrl) -> Result<TlsStream<TcpStream>, ConnectError> {
    let tls = match &url.client_tls {
        Some(tls) => tls,
        None => &ClientTls::new(ClientFiles::default())?,
    };
    Ok(tls.connect(&url.host, tcp).await?)
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
    let ConnectAck {
        session_present,
        reason_code,
        receive_max,
        max_packet_size,
        server_keepalive_sec,
        user_properties,
        ..
    } = *ack;
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
    Ok(SessionParams {
        codec,
        input,
        session_present,
        receive_max,
        ping_after: keep_alive / 2,
        user_properties,
    })
}
