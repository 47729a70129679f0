//! Tunnels through a proxy.

use std::sync::{Arc, Mutex};

use push_outbound::{Origin, Outbound, OutboundSettings, Owner, Proxy, Step, Why};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::TcpStream,
    time::timeout,
};

use crate::support::{
    Names, SHORT, allowing, answered, listen, plain, send, settings, tenant, tls::Certificates,
    unreachable, wire::Wire,
};

const BOTH: &[&[u8]] = &[b"h2", b"http/1.1"];

/// A proxy that answers like this, and then connects to an address whatever it was asked for. Gives
/// its address and the requests that it got.
async fn proxy(
    answer: &'static str,
    to: std::net::SocketAddr,
) -> (String, Arc<Mutex<Vec<String>>>) {
    let (listener, address) = listen().await;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let seen = Arc::clone(&seen);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                seen.lock().unwrap().push(String::from_utf8(head).unwrap());
                if answer.is_empty() {
                    let _ = stream.read_u8().await;
                    return;
                }
                stream.write_all(answer.as_bytes()).await.unwrap();
                if answer.contains(" 200 ") {
                    let mut server = TcpStream::connect(to).await.unwrap();
                    let _ = copy_bidirectional(&mut stream, &mut server).await;
                }
            });
        }
    });
    (format!("http://user:secret@{address}"), asked)
}

const TUNNEL: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

#[tokio::test]
async fn a_tenants_host_is_resolved_and_checked_here_and_the_proxy_is_asked_for_the_address() {
    let certificates = Certificates::of(&["hook.example"]);
    let server = certificates.serve("127.0.0.1:0", BOTH).await;
    let (url, asked) = proxy(TUNNEL, server.address).await;
    let names = Names::of(&[
        ("hook.example", &[&["10.1.0.1", "10.9.9.9"]]),
        ("inside.example", &[&["10.2.0.1"]]),
    ]);
    let outbound = Outbound::new(OutboundSettings {
        authorities: Some(certificates.authority.clone()),
        resolver: names,
        proxy: Some(Proxy::parse(&url).unwrap()),
        ..allowing("10.1.0.0/16")
    })
    .unwrap();
    let answer = answered(send(&tenant(&outbound, "https://hook.example/"), "/x").await);
    assert_eq!(answer.body, "HTTP/2.0 https://hook.example/x -".as_bytes());
    {
        let asked = asked.lock().unwrap();
        assert!(asked[0].starts_with("CONNECT 10.1.0.1:443 HTTP/1.1\r\n"), "{asked:?}");
        let authorization = "proxy-authorization: basic dxnlcjpzzwnyzxq=";
        assert!(asked[0].to_lowercase().contains(authorization), "{asked:?}");
    }
    let (step, why) = unreachable(send(&tenant(&outbound, "https://inside.example/"), "/").await);
    assert_eq!((step, why), (Step::Connect, Why::Forbidden));
    assert_eq!(asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn the_proxy_resolves_the_operators_hosts_and_never_sees_requests_without_tls() {
    let certificates = Certificates::of(&["provider.example"]);
    let server = certificates.serve("127.0.0.1:0", BOTH).await;
    let (url, asked) = proxy(TUNNEL, server.address).await;
    let outbound = Outbound::new(OutboundSettings {
        authorities: Some(certificates.authority.clone()),
        proxy: Some(Proxy::parse(&url).unwrap()),
        ..allowing("")
    })
    .unwrap();
    let origin = Origin::parse("https://provider.example:2197/", Owner::Operator).unwrap();
    let client = outbound.origin(origin, Default::default());
    assert_eq!(answered(send(&client, "/").await).status, 307);
    assert!(asked.lock().unwrap()[0].starts_with("CONNECT provider.example:2197 HTTP/1.1\r\n"));

    let (listener, address) = listen().await;
    tokio::spawn(async move { Wire::accept(&listener, None).await.serve().await });
    assert_eq!(answered(send(&plain(&outbound, address), "/").await).status, 200);
    assert_eq!(asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_proxy_that_refuses_or_hangs_is_named_and_no_text_has_its_password() {
    let certificates = Certificates::of(&["hook.example"]);
    let (_, nowhere) = listen().await;
    let refusals = [
        ("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n", Why::ProxyStatus(403)),
        ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", Why::ProxyStatus(407)),
        ("220 mail.example ESMTP\r\n", Why::Protocol),
        ("", Why::Late(SHORT)),
    ];
    for (answer, expected) in refusals {
        let (url, _asked) = proxy(answer, nowhere).await;
        let outbound = Outbound::new(OutboundSettings {
            authorities: Some(certificates.authority.clone()),
            resolver: Names::of(&[("hook.example", &[&["1.1.1.1"]])]),
            proxy: Some(Proxy::parse(&url).unwrap()),
            ..settings()
        })
        .unwrap();
        let client = tenant(&outbound, "https://hook.example/");
        let sent = timeout(SHORT * 20, send(&client, "/"));
        let sent = sent.await.expect("a documented bound does not hold");
        assert!(!format!("{sent:?} {outbound:?}").contains("secret"));
        let (step, why) = unreachable(sent);
        assert_eq!((step, why), (Step::Proxy, expected), "{answer}");
    }
}
