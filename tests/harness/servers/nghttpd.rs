//! nghttpd, an HTTP/2 server of another implementation (nghttp2). It takes every message of every
//! provider: it sends the body of a request back.

use std::{path::Path, process::Command};

use tokio::net::TcpStream;

use super::{Kind, Server, ServerError, program, system};
use crate::{
    certificates::Certificate,
    ports::{Port, free_port},
};

/// An nghttpd with TLS.
pub type Nghttpd = Server<NghttpdKind>;

/// The kind of server that nghttpd is.
#[derive(Debug)]
pub struct NghttpdKind {
    port: Port,
    certificate: Certificate,
    options: &'static [&'static str],
}

impl Server<NghttpdKind> {
    /// Starts one with these options of its command line.
    pub async fn start(
        certificate: &Certificate,
        options: &'static [&'static str],
    ) -> Result<Self, ServerError> {
        let port = free_port().map_err(system::<NghttpdKind>)?;
        let certificate = certificate.clone();
        Self::start_kind(NghttpdKind { port, certificate, options }).await
    }

    /// The number of requests that it has taken so far, by its log.
    pub fn requests(&self) -> usize {
        let log = std::fs::read_to_string(self.folder().join("server.log")).unwrap_or_default();
        log.lines()
            .filter(|line| line.contains("recv (stream_id=") && line.contains(":path: "))
            .count()
    }
}

impl Kind for NghttpdKind {
    const NAME: &'static str = "nghttpd";

    fn command(&self, folder: &Path) -> Result<Command, ServerError> {
        let mut command = program("nghttpd")?;
        command
            .args(["--echo-upload", "--verbose", "--address=127.0.0.1"])
            .arg(format!("--htdocs={}", folder.display()))
            .args(self.options)
            .arg(self.port.number().to_string())
            .args([&self.certificate.key, &self.certificate.certificate]);
        Ok(command)
    }

    async fn answers(&self) -> Result<(), String> {
        let connected = TcpStream::connect(self.port.address()).await;
        connected.map(drop).map_err(|error| error.to_string())
    }

    fn url(&self) -> String {
        format!("https://{}", self.port.address())
    }

    fn tls_url(&self) -> Option<String> {
        None
    }
}
