//! Reasons why a client does not reach a server: each is named by its kind, with the remedy. What is wrong
//! with a certificate of the client's own is tried with the real servers, in `links`.

use std::net::SocketAddr;

use push_tests::certificates::{Authority, Certificate, Validity};
use push_tls::{failure::TlsFailure, server::Acceptor};
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
