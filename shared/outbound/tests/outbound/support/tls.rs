//! Servers with TLS, whose certificate an authority of the test issued.

use std::{
    convert::Infallible,
    fs,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use push_tls::server::{Acceptor, AcceptorOptions, ServerStream, TlsSettings};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::DEADLINE;

/// An authority, and a certificate that it issued.
#[derive(Debug)]
pub(crate) struct Certificates {
    _directory: TempDir,
    pub(crate) authority: PathBuf,
    settings: TlsSettings,
}

/// A server that answers every request.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// The connections that it accepted.
    pub(crate) accepted: Arc<AtomicUsize>,
}

impl Server {
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Certificates {
    /// Issues a certificate for these names and addresses.
    pub(crate) fn of(names: &[&str]) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();

        let directory = TempDir::new().unwrap();
        let file = |name: &str, text: String| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        Self {
            authority: file("authority.pem", authority.pem()),
            settings: TlsSettings {
                certificate: file("certificate.pem", certificate.pem()),
                key: file("key.pem", key.serialize_pem()),
            },
            _directory: directory,
        }
    }

    /// Serves with this certificate; each answer has the protocol and the URI of its request as its
    /// body, and leads to another path.
    pub(crate) async fn serve(&self, at: &str, alpn: &'static [&'static [u8]]) -> Server {
        self.listen(at, alpn, |stream| async move {
            let server = auto::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(stream), service_fn(echo)).await;
        })
        .await
    }

    /// Serves each connection by a script.
    pub(crate) async fn script(
        &self,
        at: &str,
        alpn: &'static [&'static [u8]],
        script: Script,
    ) -> Server {
        self.listen(at, alpn, move |stream| script.run(stream)).await
    }

    async fn listen<F>(
        &self,
        at: &str,
        alpn: &'static [&'static [u8]],
        serve: impl Fn(ServerStream<TcpStream>) -> F + Clone + Send + 'static,
    ) -> Server
    where
        F: Future<Output = ()> + Send,
    {
        let options =
            AcceptorOptions { alpn, handshake_timeout: DEADLINE, reload_interval: DEADLINE };
        let acceptor = Acceptor::new(&self.settings, options).unwrap();
        let listener = TcpListener::bind(at).await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let (acceptor, serve) = (acceptor.clone(), serve.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream).await;
                    }
                });
            }
        });
        Server { address, accepted }
    }
}

/// Serves without TLS, as [`Certificates::serve`] does with it.
pub(crate) async fn serve_plain(at: &str) -> Server {
    let listener = TcpListener::bind(at).await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service_fn(echo)).await;
            });
        }
    });
    Server { address, accepted }
}

/// What a server with HTTP/1.1 does with a request whose body is `body`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Script {
    /// It sends these bytes and closes the connection.
    AnswerAndClose(&'static [u8]),
    /// It says nothing until the client goes.
    Silence,
}

impl Script {
    async fn run(self, mut stream: ServerStream<TcpStream>) {
        let mut request = Vec::new();
        while !request.ends_with(b"body") {
            match stream.read_u8().await {
                Ok(byte) => request.push(byte),
                Err(_) => return,
            }
        }
        match self {
            Self::AnswerAndClose(answer) => {
                let _ = stream.write_all(answer).await;
                let _ = stream.shutdown().await;
            }
            Self::Silence => drop(stream.read_u8().await),
        }
    }
}

async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let host = request.headers().get("host").and_then(|host| host.to_str().ok()).unwrap_or("-");
    let text = format!("{:?} {} {host}", request.version(), request.uri());
    let answer = Response::builder().status(307).header("location", "/elsewhere");
    Ok(answer.body(Full::from(text)).unwrap())
}
