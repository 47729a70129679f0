//! A listener's certificate: shown to clients, replaced without a restart, never lost.

use std::{fs, io::Write as _, net::SocketAddr, time::Duration};

use push_tests::{
    certificates::{Authority, Certificate, Validity},
    eventually,
};
use push_tls::{
    client::ClientTls,
    failure::TlsFailure,
    server::{AcceptError, Acceptor, AcceptorOptions, ENCRYPTED_AHEAD},
    tokio_rustls::rustls::ClientConnection,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::tls::support::{DEADLINE, OPTIONS, client, failure, greeted, listen, settings};

/// A listener of this machine, its certificate's files, and a client that trusts it.
async fn listener() -> (Authority, Certificate, SocketAddr, ClientTls) {
    let authority = Authority::new();
    let certificate = authority.local_server();
    let address = listen(Acceptor::new(&settings(&certificate), OPTIONS).unwrap()).await;
    let client = client(&authority, None).unwrap();
    (authority, certificate, address, client)
}

/// The certificate that the listener shows now, to a client that has no earlier session with it to
/// resume.
async fn shown(authority: &Authority, address: SocketAddr) -> Vec<u8> {
    let client = client(authority, None).unwrap();
    let stream = greeted(&client, "localhost", address).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

/// Waits until the listener shows another certificate.
async fn another_is_shown(authority: &Authority, address: SocketAddr, first: &[u8]) {
    eventually("another certificate is shown", DEADLINE, async || {
        let now = shown(authority, address).await;
        (now != first).then_some(()).ok_or_else(|| "the first one is shown".to_owned())
    })
    .await;
}

#[tokio::test]
async fn a_client_that_trusts_the_authority_is_served_and_agrees_on_a_protocol() {
    let (_authority, _, address, client) = listener().await;
    let stream = greeted(&client, "127.0.0.1", address).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), None, "it asked for none");

    let mut config = (*client.material().await.config).clone();
    config.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
    let connector = push_tls::tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    let tcp = TcpStream::connect(address).await.unwrap();
    let stream = connector.connect("localhost".try_into().unwrap(), tcp).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]), "the listener's choice");
}

#[tokio::test]
async fn a_certificate_that_is_replaced_is_shown_without_a_restart() {
    let (authority, certificate, address, _) = listener().await;
    let first = shown(&authority, address).await;
    authority.local_server().replace(&certificate);
    another_is_shown(&authority, address, &first).await;
}

#[tokio::test]
async fn files_that_cannot_be_used_leave_the_earlier_certificate_until_they_can() {
    let (authority, certificate, address, _) = listener().await;
    let first = shown(&authority, address).await;
    let next = authority.local_server();
    let broken: [&dyn Fn(); 3] = [
        &|| fs::write(&certificate.key, "no key").unwrap(),
        &|| fs::remove_file(&certificate.key).unwrap(),
        // As in the middle of a renewal: the new certificate with the old key.
        &|| fs::copy(&next.certificate, &certificate.certificate).map(drop).unwrap(),
    ];
    for damage in broken {
        damage();
        // More than enough time for a look at the files.
        for _ in 0..20 {
            assert_eq!(shown(&authority, address).await, first);
            tokio::time::sleep(OPTIONS.reload_interval).await;
        }
    }
    fs::copy(&next.key, &certificate.key).unwrap();
    another_is_shown(&authority, address, &first).await;
}

#[tokio::test]
async fn a_client_that_says_nothing_is_given_up_after_the_handshake_timeout() {
    let authority = Authority::new();
    let options = AcceptorOptions { handshake_timeout: Duration::from_millis(50), ..OPTIONS };
    let acceptor = Acceptor::new(&settings(&authority.local_server()), options).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let _silent = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let accepted = timeout(DEADLINE, acceptor.accept(stream)).await.unwrap();
    assert!(matches!(accepted, Err(AcceptError::Late(_))), "{accepted:?}");
}

#[tokio::test]
async fn a_client_without_tls_is_refused_and_the_next_one_is_served() {
    let (_authority, _, address, client) = listener().await;
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(DEADLINE, plain.read_to_end(&mut answer)).await.unwrap();
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    greeted(&client, "localhost", address).await.unwrap();
}

#[tokio::test]
async fn a_listener_follows_a_certificate_that_expires_when_it_is_renewed() {
    let authority = Authority::new();
    let certificate = authority.server(&["localhost"], Validity::Expired);
    let address = listen(Acceptor::new(&settings(&certificate), OPTIONS).unwrap()).await;
    let client = client(&authority, None).unwrap();
    let failed = failure(&client, "localhost", address).await;
    assert!(matches!(failed, TlsFailure::Expired(Some(_))), "{failed:?}");
    authority.local_server().replace(&certificate);
    eventually("the renewed certificate is trusted", DEADLINE, async || {
        greeted(&client, "localhost", address).await.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

#[tokio::test]
async fn nothing_is_encrypted_far_ahead_of_what_a_client_takes() {
    let authority = Authority::new();
    let acceptor = Acceptor::new(&settings(&authority.local_server()), OPTIONS).unwrap();
    let client = client(&authority, None).unwrap();
    // What the network holds, and what a client may have read and not decrypted.
    let between = 4 * 1024;
    let (near, far) = tokio::io::duplex(between);
    let (served, slow) = tokio::join!(acceptor.accept(near), client.connect("localhost", far));
    let (mut served, mut slow) = (served.unwrap(), slow.unwrap());

    let (mut accepted, mut taken) = (0, 0);
    let mut some = [0; 1000];
    while taken < 4 * ENCRYPTED_AHEAD {
        // The stream is in memory: a write that is not done at once waits for the client.
        while let Ok(written) = timeout(Duration::from_millis(1), served.write(&[b'x'; 1000])).await
        {
            accepted += written.unwrap();
            let ahead = accepted - taken;
            assert!(
                ahead < 2 * ENCRYPTED_AHEAD,
                "{ahead} bytes count as written and are not taken"
            );
        }
        taken += timeout(DEADLINE, slow.read(&mut some)).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_handshake_that_is_longer_than_any_is_ended() {
    let (_authority, _, address, client) = listener().await;
    // The beginning of a hello of 60,000 bytes, in records of 1,000.
    let record = |begin: &[u8]| {
        let mut record = [&[22, 3, 1, 3, 232], begin].concat();
        record.resize(5 + 1000, 0);
        record
    };
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&record(&[1, 0, 234, 96])).await.unwrap();
    for _ in 0..10 {
        stream.write_all(&record(&[])).await.unwrap();
    }
    let silent = timeout(Duration::from_millis(200), stream.read_u8()).await;
    assert!(silent.is_err(), "11 KB: {silent:?}");
    for _ in 0..10 {
        let _ = stream.write_all(&record(&[])).await;
    }
    let ended = timeout(DEADLINE, stream.read_to_end(&mut Vec::new())).await;
    assert!(ended.is_ok(), "21 KB");
    // The bound ends with the handshake.
    greeted(&client, "localhost", address).await.unwrap();
}

#[tokio::test]
async fn what_a_client_sends_together_with_the_end_of_its_handshake_is_read() {
    const DATA: usize = 60_000;
    let authority = Authority::new();
    let certificate = authority.local_server();
    let acceptor = Acceptor::new(&settings(&certificate), OPTIONS).unwrap();
    let client = client(&authority, None).unwrap();
    let config = client.material().await.config.clone();
    let (near, mut far) = tokio::io::duplex(2 * DATA);
    let serving = tokio::spawn(async move {
        let mut served = acceptor.accept(near).await.unwrap();
        let mut read = vec![0; DATA];
        served.read_exact(&mut read).await.unwrap();
        read
    });

    let name = "localhost".try_into().unwrap();
    let mut connection = ClientConnection::new(config, name).unwrap();
    connection.set_buffer_limit(None);
    let mut sent = Vec::new();
    while connection.is_handshaking() {
        while connection.wants_write() {
            connection.write_tls(&mut sent).unwrap();
        }
        far.write_all(&std::mem::take(&mut sent)).await.unwrap();
        let mut received = vec![0; 16 * 1024];
        let length = far.read(&mut received).await.unwrap();
        connection.read_tls(&mut &received[..length]).unwrap();
        connection.process_new_packets().unwrap();
    }
    connection.writer().write_all(&[b'x'; DATA]).unwrap();
    while connection.wants_write() {
        connection.write_tls(&mut sent).unwrap();
    }
    far.write_all(&sent).await.unwrap();
    let read = timeout(DEADLINE, serving).await.unwrap().unwrap();
    assert!(read.iter().all(|byte| *byte == b'x'));
}
