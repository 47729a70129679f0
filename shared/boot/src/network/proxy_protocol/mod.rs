//! Finds the client of a connection or a request that comes through a proxy.
//!
//! A proxy hides its clients' addresses, to which limits, failed logins and the log apply. It can name
//! them: for a connection with a header of the PROXY protocol (`header`), for a request with
//! `X-Forwarded-For` (`forwarded`). Any client can send either, so they count only from the addresses of
//! [`TrustedProxies`].

mod forwarded;
mod header;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use tokio::{
    io::AsyncReadExt as _,
    net::TcpStream,
    time::{sleep, timeout},
};

use self::header::{Begin, ENOUGH};
pub use self::header::{Invalid, is_header};
use crate::{settings, settings::ConfigErrors};

/// The time that a proxy has to send its header, which comes before the first byte of the client.
const HEADER_TIME: Duration = Duration::from_secs(5);
/// The pause before a header of which only a part has come is read again, which is rare.
const PIECE_TIME: Duration = Duration::from_millis(5);

settings! {
    /// The flag about proxies.
    pub struct ProxyArgs, "Listeners and stop" => ProxyValues {
        /// Trust the proxies in these networks (`10.0.0.0/8,2001:db8::/32`) to name their clients' addresses,
        /// with a header of the PROXY protocol or with `X-Forwarded-For`
        trusted_proxies: Option<TrustedProxies> = ["NETWORKS"] TrustedProxies::parse;
    }
}

impl ProxyArgs {
    /// Checks the flag; problems are added to `errors`.
    pub fn check(&self, errors: &mut ConfigErrors) -> Option<TrustedProxies> {
        Some(self.values(errors)?.trusted_proxies.unwrap_or_default())
    }
}

/// The networks of proxies that are trusted. None by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies(Arc<[IpNet]>);

/// The reasons why the client of a connection is unknown. The connection cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum NoClient {
    /// The proxy sent a header that cannot be read.
    #[error(transparent)]
    Header(#[from] Invalid),
    /// The connection ended, or failed.
    #[error("the connection ended before its first byte")]
    Io(#[from] io::Error),
    /// Nothing came in time.
    #[error("nothing came within {HEADER_TIME:?}")]
    Late,
}

impl TrustedProxies {
    /// Reads networks, separated by commas. An address alone is a network of one.
    fn parse(text: &str) -> Result<Self, String> {
        let network = |text: &str| {
            let address = text.parse::<IpAddr>().map(IpNet::from);
            // Without the text: it may be a URL with a password.
            address.or_else(|_| text.parse()).map_err(|_| {
                "must be networks like 10.0.0.0/8 or 2001:db8::1, separated by commas".to_owned()
            })
        };
        text.split(',').map(|text| network(text.trim())).collect::<Result<_, _>>().map(Self)
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if this is the address of one.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The client of a new connection from `peer`, which is `peer` unless it is a trusted proxy that names
    /// another one. Nothing but the header is read from the connection.
    ///
    /// # Errors
    /// If the client is not known.
    pub async fn client_of(
        &self,
        stream: &mut TcpStream,
        peer: SocketAddr,
    ) -> Result<SocketAddr, NoClient> {
        if !self.contains(peer.ip()) {
            return Ok(peer);
        }
        match timeout(HEADER_TIME, read_client(stream)).await {
            Ok(client) => Ok(client?.unwrap_or(peer)),
            Err(_) => Err(NoClient::Late),
        }
    }
}

async fn read_client(stream: &mut TcpStream) -> Result<Option<SocketAddr>, NoClient> {
    let mut bytes = [0; ENOUGH];
    let mut before = 0;
    let length = loop {
        let n = stream.peek(&mut bytes).await?;
        if n == 0 {
            return Err(NoClient::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        match header::begin(&bytes[..n])? {
            Begin::NoHeader => return Ok(None),
            Begin::Header(length) => break length,
            // Peeking returns bytes that it has returned before without waiting.
            Begin::Unclear if n == before => sleep(PIECE_TIME).await,
            Begin::Unclear => before = n,
        }
    };
    let mut header = vec![0; length];
    stream.read_exact(&mut header).await?;
    Ok(header::read(&header)?)
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncWriteExt as _, net::TcpListener};

    use super::*;

    fn proxies(text: &str) -> TrustedProxies {
        TrustedProxies::parse(text).unwrap()
    }

    #[test]
    fn networks_are_read_and_contain_what_they_say() {
        let trusted = proxies("10.0.0.0/8, 192.0.2.7,2001:db8::/32");
        for address in ["10.1.2.3", "192.0.2.7", "2001:db8:1::1", "::ffff:10.0.0.1"] {
            assert!(trusted.contains(address.parse().unwrap()), "{address}");
        }
        for address in ["11.0.0.1", "192.0.2.8", "2001:db9::1", "::1"] {
            assert!(!trusted.contains(address.parse().unwrap()), "{address}");
        }
        assert!(!TrustedProxies::default().contains("127.0.0.1".parse().unwrap()));
        for text in ["", "10.0.0.0/33", "10.0.0.0/8,", "proxy.example", "10.0.0"] {
            assert!(TrustedProxies::parse(text).is_err(), "{text:?}");
        }
    }

    /// The client of a connection over which these pieces come, and the bytes left to read.
    async fn read(trusted: &str, pieces: &[&[u8]]) -> (Result<SocketAddr, NoClient>, Vec<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        sender.set_nodelay(true).unwrap();
        let (mut stream, peer) = listener.accept().await.unwrap();
        let sending = async {
            for piece in pieces {
                sender.write_all(piece).await.unwrap();
                sleep(4 * PIECE_TIME).await;
            }
            sender.shutdown().await.unwrap();
        };
        let trusted = proxies(trusted);
        let (client, ()) = tokio::join!(trusted.client_of(&mut stream, peer), sending);
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        (
            client
                .map(|client| if client == peer { "127.0.0.1:1".parse().unwrap() } else { client }),
            rest,
        )
    }

    #[tokio::test]
    async fn the_header_of_a_trusted_proxy_is_read_and_nothing_behind_it() {
        let here = "127.0.0.0/8";
        let (itself, named): (SocketAddr, SocketAddr) =
            ("127.0.0.1:1".parse().unwrap(), "192.0.2.1:5".parse().unwrap());
        let line = b"PROXY TCP4 192.0.2.1 10.0.0.1 5 443\r\n";
        let (client, rest) = read(here, &[&[&line[..], b"GET /"].concat()]).await;
        assert_eq!((client.unwrap(), &rest[..]), (named, &b"GET /"[..]));
        let (client, rest) = read(here, &[&line[..3], &line[3..10], &line[10..], b"GET /"]).await;
        assert_eq!((client.unwrap(), &rest[..]), (named, &b"GET /"[..]), "in pieces");
        let (client, rest) = read(here, &[b"P", b"OST /"]).await;
        assert_eq!((client.unwrap(), &rest[..]), (itself, &b"POST /"[..]), "it may send none");
        let (client, rest) = read("10.0.0.0/8", &[line]).await;
        assert_eq!(
            (client.unwrap(), &rest[..]),
            (itself, &line[..]),
            "no other address is believed"
        );
        assert!(matches!(read(here, &[b"PROXY \r\n"]).await.0, Err(NoClient::Header(_))));
        assert!(matches!(read(here, &[]).await.0, Err(NoClient::Io(_))));
    }
}
