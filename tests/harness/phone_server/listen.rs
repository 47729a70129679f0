//! The port of a server: connections are accepted, served and ended, and the port is closed for a while.

use std::sync::Arc;

use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring::default_provider,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

use super::{Shared, http1, relay};
use crate::certificates::Certificate;

/// Accepts connections, except while the server is down.
pub(super) async fn listen(
    mut listener: TcpListener,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
) {
    let address = listener.local_addr().expect("the address of a bound port");
    let mut is_down = shared.is_down.subscribe();
    loop {
        tokio::select! {
            () = accept(&listener, tls.as_ref(), &shared) => {}
            _ = is_down.wait_for(|is_down| *is_down) => {}
        }
        // The tasks of all connections were aborted with the set that has them.
        drop(listener);
        if is_down.wait_for(|is_down| !*is_down).await.is_err() {
            return;
        }
        listener = TcpListener::bind(address).await.expect("a reserved port");
    }
}

async fn accept(listener: &TcpListener, tls: Option<&TlsAcceptor>, shared: &Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let _ = stream.set_nodelay(true);
                if shared.wire().resets {
                    let _ = stream.set_zero_linger();
                }
                shared.record().connections += 1;
                let (tls, shared) = (tls.cloned(), shared.clone());
                connections.spawn(async move {
                    let mut closings = shared.closings.subscribe();
                    tokio::select! {
                        () = serve(stream, tls, &shared) => {}
                        _ = closings.changed() => {}
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, tls: Option<TlsAcceptor>, shared: &Arc<Shared>) {
    shared.answers().await;
    match tls {
        None => relay::relay(stream, shared).await,
        Some(tls) => match tls.accept(stream).await {
            Ok(stream) => match shared.http1 {
                None => relay::relay(stream, shared).await,
                Some(manner) => drop(http1::serve(stream, manner, shared).await),
            },
            Err(_) => shared.record().failed_handshakes += 1,
        },
    }
}

/// Accepts TLS with this certificate, for the protocols of this list.
///
/// # Panics
/// If the certificate cannot be used.
pub fn acceptor(certificate: &Certificate, alpn: &[&[u8]]) -> TlsAcceptor {
    let chain = CertificateDer::pem_file_iter(&certificate.certificate).expect("a certificate");
    let chain = chain.collect::<Result<Vec<_>, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_file(&certificate.key).expect("a key");
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("TLS versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate and its key");
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}
