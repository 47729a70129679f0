//! The transports against a server of another implementation: nghttpd, with TLS, whose authority is one of
//! the operator's own.

use push_providers::{Provider, apns::Apns, fcm::Fcm};
use push_tests::{
    certificates::Authority,
    phone_server::{Face, PhoneServer},
    servers::Nghttpd,
};
use push_transports::{Transport as _, http::HttpTransport};
use rcgen::KeyPair;
use serde_json::json;

use super::{
    apns_token,
    driver::{deliver, numbers, settings, transport},
    fcm_token, service_account,
};

const DEVICES: usize = 1000;

/// Options under which it speaks HTTP/2 as other servers do: few streams, answers before the request has
/// arrived as a whole, the smallest windows, padding and trailers.
const OPTIONS: [&[&str]; 4] = [
    &[],
    &["--max-concurrent-streams=3"],
    &["--early-response", "--padding=255", "--trailer=x: y"],
    &["--window-bits=8", "--connection-window-bits=16", "--header-table-size=0"],
];

async fn all_are_sent<P: Provider>(
    transport: &HttpTransport<P>,
    server: &Nghttpd,
    token: &dyn Fn(usize) -> String,
) {
    let before = server.requests();
    let outcomes = deliver(transport, DEVICES, token).await;
    assert_eq!(numbers(&outcomes), [("Sent".to_owned(), DEVICES)].into());
    assert_eq!(server.requests() - before, DEVICES);
}

#[tokio::test(flavor = "multi_thread")]
async fn fcm_messages_are_taken_by_nghttpd() {
    let authority = Authority::new();
    let certificate = authority.local_server();
    let tokens = PhoneServer::start(Face::Tokens, Some(&certificate)).await;
    let account = service_account("project", &format!("{}/token", tokens.url()));
    for options in OPTIONS {
        let server = Nghttpd::start(&certificate, options).await.unwrap();
        let settings = settings(&server.url(), &authority, "127.0.0.0/8");
        let transport = transport::<Fcm>(&account, settings);
        all_are_sent(&transport, &server, &fcm_token).await;
        transport.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn apns_messages_are_taken_by_nghttpd_also_after_it_was_restarted() {
    let authority = Authority::new();
    let certificate = authority.local_server();
    let account = json!({
        "key_pem": KeyPair::generate().unwrap().serialize_pem(), "key_id": "ABC123DEFG",
        "team_id": "TEAM123456", "topic": "com.example.news", "sandbox": false,
    });
    for options in OPTIONS {
        let mut server = Nghttpd::start(&certificate, options).await.unwrap();
        let settings = settings(&server.url(), &authority, "");
        let transport = transport::<Apns>(&account, settings);
        all_are_sent(&transport, &server, &apns_token).await;
        server.restart().await.unwrap();
        all_are_sent(&transport, &server, &apns_token).await;
        transport.close().await;
    }
}
