//! A tunnel through the operator's HTTP proxy (CONNECT).

use std::fmt;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use futures::future::join;
use http::{HeaderValue, Method, Request, header};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use tokio::net::TcpStream;
use url::Url;

use crate::{
    error::{Step, Unreachable, Why},
    origin::Host,
};

/// The most bytes of a proxy's answer; it is a status line and a few headers.
const ANSWER_BYTES: usize = 16 * 1024;

/// The operator's proxy, through which every TLS connection goes. `Debug` leaves the password out.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    pub(super) host: String,
    pub(super) port: u16,
    authorization: Option<HeaderValue>,
}

/// The setting `PUSH_OUTBOUND_PROXY` cannot be used. The text does not repeat it, because it may
/// contain a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the proxy must be given as http://host:port or http://user:password@host:port")]
pub struct ProxyError;

impl Proxy {
    /// Reads the proxy's URL.
    ///
    /// # Errors
    /// Fails if it is not an `http` URL with host and port.
    pub fn parse(url: &str) -> Result<Self, ProxyError> {
        let url = Url::parse(url).map_err(|_| ProxyError)?;
        let host = match url.host() {
            Some(url::Host::Ipv6(address)) => address.to_string(),
            Some(host) => host.to_string(),
            None => return Err(ProxyError),
        };
        let port = url.port_or_known_default().filter(|port| *port != 0).ok_or(ProxyError)?;
        if url.scheme() != "http" || !matches!(url.path(), "" | "/") || url.query().is_some() {
            return Err(ProxyError);
        }
        let authorization = match (url.username(), url.password()) {
            ("", None) => None,
            (user, password) => Some(basic(user, password.unwrap_or_default())?),
        };
        Ok(Self { host, port, authorization })
    }

    /// Asks for a tunnel to the host over a new connection to the proxy; the caller bounds the time.
    pub(super) async fn tunnel(
        &self,
        stream: TcpStream,
        host: &Host,
        port: u16,
    ) -> Result<TcpStream, Unreachable> {
        let failed = |why| Step::Proxy.failed(why);
        let target = format!("{host}:{port}");
        let mut request = Request::builder()
            .method(Method::CONNECT)
            .uri(target.as_str())
            .header(header::HOST, target.as_str());
        if let Some(authorization) = &self.authorization {
            request = request.header(header::PROXY_AUTHORIZATION, authorization.clone());
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|_| failed(Why::Protocol))?;
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(ANSWER_BYTES)
            .handshake::<_, Empty<Bytes>>(TokioIo::new(stream))
            .await
            .map_err(|_| failed(Why::Protocol))?;
        let asked = async move {
            let answer = sender.send_request(request).await.map_err(|_| failed(Why::Protocol))?;
            if !answer.status().is_success() {
                return Err(failed(Why::ProxyStatus(answer.status().as_u16())));
            }
            hyper::upgrade::on(answer).await.map_err(|_| failed(Why::Protocol))
        };
        let (tunnel, _) = join(asked, connection.with_upgrades()).await;
        let parts = tunnel?.downcast::<TokioIo<TcpStream>>();
        let parts = parts.map_err(|_| failed(Why::Protocol))?;
        // Behind the tunnel is TLS, in which the client speaks first.
        if !parts.read_buf.is_empty() {
            return Err(failed(Why::Protocol));
        }
        Ok(parts.io.into_inner())
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("host", &self.host)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

fn basic(user: &str, password: &str) -> Result<HeaderValue, ProxyError> {
    let mut pair: Vec<u8> = percent_decode_str(user).collect();
    pair.push(b':');
    pair.extend(percent_decode_str(password));
    let text = format!("Basic {}", BASE64_STANDARD.encode(pair));
    let mut value = HeaderValue::from_str(&text).map_err(|_| ProxyError)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_a_url_with_host_and_port_and_its_password_is_never_printed() {
        let proxy = Proxy::parse("http://user:p%40ss@proxy.example:3128").unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), ("proxy.example", 3128));
        assert_eq!(proxy.authorization, HeaderValue::from_str("Basic dXNlcjpwQHNz").ok());
        let printed = format!("{proxy:?}");
        assert!(!printed.contains("p@ss") && !printed.contains("dXNl"), "{printed}");
        assert_eq!(Proxy::parse("http://proxy.example").unwrap().port, 80);
        assert_eq!(Proxy::parse("http://[::1]:3128").unwrap().host, "::1");
        for wrong in ["proxy:3128", "https://proxy:3128", "socks5://proxy:1080", "http://p/x", ""] {
            assert_eq!(Proxy::parse(wrong), Err(ProxyError), "{wrong}");
        }
    }
}
