//! Mosquitto, which the tests use as the MQTT 5 broker.

use std::{path::Path, process::Command};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    Kind, Server, ServerError, program, system,
    tls::{Tls, TlsListener},
};
use crate::ports::{Port, free_port};

/// A Mosquitto broker. It keeps sessions in memory only: a restart loses them.
pub type Mosquitto = Server<MosquittoKind>;

/// The kind of server that Mosquitto is.
#[derive(Debug)]
pub struct MosquittoKind {
    port: Port,
    tls: Option<TlsListener>,
}

/// Messages that are kept for a client that is disconnected or slow: more than any test sends
/// to one.
const QUEUED_MESSAGES: u32 = 100_000;

/// CONNECT, MQTT 5, clean start, keep-alive 60 s, no properties, empty client id.
const CONNECT: [u8; 15] = *b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x00";
/// First byte of CONNACK.
const CONNACK: u8 = 0x20;

impl Server<MosquittoKind> {
    /// Starts one.
    pub async fn start() -> Result<Self, ServerError> {
        let port = free_port().map_err(system::<MosquittoKind>)?;
        Self::start_kind(MosquittoKind { port, tls: None }).await
    }

    /// Starts one that has a TLS listener as well.
    pub async fn start_with_tls(tls: Tls) -> Result<Self, ServerError> {
        let port = free_port().map_err(system::<MosquittoKind>)?;
        let tls = TlsListener::new(tls).map_err(system::<MosquittoKind>)?;
        Self::start_kind(MosquittoKind { port, tls: Some(tls) }).await
    }
}

impl Kind for MosquittoKind {
    const NAME: &'static str = "Mosquitto";

    fn command(&self, folder: &Path) -> Result<Command, ServerError> {
        let file = folder.join("mosquitto.conf");
        let mut settings = format!(
            "listener {} 127.0.0.1\n\
             allow_anonymous true\n\
             persistence false\n\
             set_tcp_nodelay true\n\
             max_inflight_messages 512\n\
             max_queued_messages {QUEUED_MESSAGES}\n\
             log_type error\n\
             log_type warning\n",
            self.port.number(),
        );
        if let Some(listener) = &self.tls {
            let [certificate, key, authority] = listener.files();
            // The user that it otherwise becomes if root starts it may not read the files.
            settings.push_str(&format!(
                "user root\n\
                 listener {} 127.0.0.1\n\
                 certfile {certificate}\n\
                 keyfile {key}\n\
                 cafile {authority}\n\
                 require_certificate {}\n",
                listener.port.number(),
                listener.tls.clients_must_prove,
            ));
        }
        std::fs::write(&file, settings).map_err(system::<Self>)?;
        let mut command = program("mosquitto")?;
        command.arg("-c").arg(file);
        Ok(command)
    }

    async fn answers(&self) -> Result<(), String> {
        let answer = async {
            let mut connection = TcpStream::connect(self.port.address()).await?;
            connection.write_all(&CONNECT).await?;
            let mut head = [0; 4];
            connection.read_exact(&mut head).await.map(|_| head)
        };
        match answer.await {
            // The bytes: type, length, session flag, reason code. Reason code 0 is success.
            Ok([CONNACK, _, _, 0]) => Ok(()),
            Ok(other) => Err(format!("{other:02x?} in place of CONNACK")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn url(&self) -> String {
        format!("mqtt://{}", self.port.address())
    }

    fn tls_url(&self) -> Option<String> {
        Some(self.tls.as_ref()?.url("mqtts", ""))
    }
}
