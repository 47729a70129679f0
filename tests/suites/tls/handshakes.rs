//! Reasons why a client does not reach a server: each is named by its kind, with the remedy.

use std::{net::SocketAddr, sync::Arc};

use push_tests::certificates::{Authority, Certificate, Validity};
use push_tls::{
    failure::TlsFailure,
    rustls::{
        RootCertStore, ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
        server::WebPkiClientVerifier,
    },
    server::Acceptor,
    tokio_rustls::TlsAcceptor,
};
use tokio::{io::AsyncWriteExt as _, net::TcpListener};

use crate::tls::support::{OPTIONS, client, failure, greeted, listen, settings};

async fn server_with(certificate: &Certificate) -> SocketAddr {
    listen(Acceptor::new(&settings(certificate), OPTIONS).unwrap()).await
}

#[tokio::test]
async fn a_certificate_of_an_authority_that_is_not_trusted_is_refused() {
    let (theirs, ours) = (Authority::new(), Authority::new());
    let address = server_with(&theirs.local_server()).await;
    let failed = failure(&client(&ours, None).unwrap(), "localhost", address).await;
    assert_eq!(failed, TlsFailure::UnknownAuthority);
    assert!(failed.to_string().contains("not from a trusted authority"), "{failed}");

    // An authority that was made again has the old name and another key.
    let (before, after) = (Authority::named("one name"), Authority::named("one name"));
    let renewed = server_with(&after.local_server()).await;
    let failed = failure(&client(&before, None).unwrap(), "localhost", renewed).await;
    assert_eq!(failed, TlsFailure::UnknownAuthority);

    // A file of authorities replaces those of the machine, and the machine's are not those of this test.
    let machine = push_tls::client::ClientTls::new(Default::default()).unwrap();
    assert_eq!(failure(&machine, "localhost", address).await, TlsFailure::UnknownAuthority);
}

#[tokio::test]
async fn a_certificate_that_is_not_valid_now_is_refused_with_its_date() {
    let authority = Authority::new();
    let client = client(&authority, None).unwrap();
    for (validity, text) in
        [(Validity::Expired, "has expired (20"), (Validity::NotYet, "is not valid yet (20")]
    {
        let address = server_with(&authority.server(&["localhost"], validity)).await;
        let failed = failure(&client, "localhost", address).await;
        assert!(failed.to_string().contains(text), "{failed}");
    }
}

#[tokio::test]
async fn a_certificate_of_another_host_is_refused_with_both_names() {
    let authority = Authority::new();
    let address = server_with(&authority.server(&["queue.example"], Validity::Now)).await;
    let client = client(&authority, None).unwrap();
    let failed = failure(&client, "localhost", address).await;
    assert!(matches!(failed, TlsFailure::WrongName(_)), "{failed:?}");
    let text = failed.to_string();
    assert!(text.contains("queue.example") && text.contains("localhost"), "{text}");
    greeted(&client, "queue.example", address).await.unwrap();
}

/// A server that requires a certificate of this authority.
async fn demanding_server(authority: &Authority) -> SocketAddr {
    let own = authority.local_server();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.file()).unwrap()).unwrap();
    push_tls::install_provider();
    let clients = WebPkiClientVerifier::builder(roots.into()).build().unwrap();
    let config = ServerConfig::builder()
        .with_client_cert_verifier(clients)
        .with_single_cert(
            vec![CertificateDer::from_pem_file(&own.certificate).unwrap()],
            PrivateKeyDer::from_pem_file(&own.key).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let _ = stream.write_all(b"hello").await;
                let _ = stream.shutdown().await;
            }
        }
    });
    address
}

#[tokio::test]
async fn a_client_shows_its_certificate_and_learns_what_is_wrong_with_it() {
    let (authority, other) = (Authority::new(), Authority::new());
    let address = demanding_server(&authority).await;
    let right = authority.client("worker", Validity::Now);
    greeted(&client(&authority, Some(&right)).unwrap(), "localhost", address).await.unwrap();

    let none = client(&authority, None).unwrap();
    assert_eq!(failure(&none, "localhost", address).await, TlsFailure::CertificateRequired);
    for (wrong, alert) in [
        (authority.client("worker", Validity::Expired), "CertificateExpired"),
        (other.client("worker", Validity::Now), "UnknownCA"),
    ] {
        let client = client(&authority, Some(&wrong)).unwrap();
        let failed = failure(&client, "localhost", address).await.to_string();
        assert!(failed.contains("refused the client certificate"), "{failed}");
        assert!(failed.contains(alert), "{failed}");
    }
}

#[tokio::test]
async fn a_client_certificate_that_is_renewed_is_shown_on_the_next_connection() {
    let authority = Authority::new();
    let address = demanding_server(&authority).await;
    let shown = authority.client("worker", Validity::Expired);
    let client = client(&authority, Some(&shown)).unwrap();
    failure(&client, "localhost", address).await;
    authority.client("worker", Validity::Now).replace(&shown);
    greeted(&client, "localhost", address).await.unwrap();
}

#[tokio::test]
async fn a_server_that_does_not_speak_tls_is_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"-ERR unknown command\r\n").await.unwrap();
        std::future::pending::<()>().await;
    });
    let client = client(&Authority::new(), None).unwrap();
    assert_eq!(failure(&client, "localhost", address).await, TlsFailure::NoTls);
}
