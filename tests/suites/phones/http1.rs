//! Browsers' push services and webhooks behind servers without HTTP/2.

use push_providers::webhook::{self, Webhook};
use push_tests::{
    certificates::Authority,
    eventually,
    phone_server::{Face, Manner, PhoneServer, Record},
    stack::DEADLINE,
};
use push_transports::Outcome;
use ring::rand::SystemRandom;

use super::driver::{Driven, numbers, settings, web_push};

const LOOPBACK: &str = "127.0.0.0/8";

const MANNERS: [Manner; 6] = [
    Manner::Kept,
    Manner::Closed,
    Manner::ClosedUnsaid,
    Manner::Chunked,
    Manner::Early,
    Manner::Interim,
];

async fn server(face: Face, authority: &Authority, manner: Manner) -> PhoneServer {
    PhoneServer::start_http1(face, &authority.local_server(), manner).await
}

/// Waits until the server has read requests for so many devices: an early answer comes before that.
async fn taken(server: &PhoneServer, devices: usize) -> Record {
    eventually("every request is read", DEADLINE, async || {
        let record = server.record();
        let taken = record.devices();
        if taken < devices { Err(format!("{taken} of {devices}")) } else { Ok(record) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_service_with_http_1_1_alone_gets_one_message_for_each_browser() {
    for manner in MANNERS {
        let authority = Authority::new();
        let server = server(Face::WebPush, &authority, manner).await;
        let driven = web_push(server, authority, LOOPBACK);
        let outcomes = driven.deliver(50).await;
        assert_eq!(numbers(&outcomes), [("Sent".to_owned(), 50)].into(), "{manner:?}");
        let record = taken(&driven.provider, 50).await;
        super::one_copy_each(&record, 50);
        if manner == Manner::Kept {
            assert!(record.connections <= 8, "{} connections", record.connections);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_with_http_1_1_alone_gets_one_message_for_each_device() {
    for manner in MANNERS {
        let authority = Authority::new();
        let server = server(Face::Webhook, &authority, manner).await;
        let url = format!("{}/push", server.url());
        let credential = webhook::Credential::generate(&url, &SystemRandom::new()).unwrap();
        let credential = serde_json::to_value(&credential).unwrap();
        let settings = settings(&server.url(), &authority, LOOPBACK);
        let token = |n| format!("user {n}");
        let driven = Driven::<Webhook>::new(server, &credential, (settings, authority), token);
        let outcomes = driven.deliver(250).await;
        let sent = outcomes.iter().filter(|outcome| **outcome == Outcome::Sent).count();
        assert_eq!(sent, 250, "{manner:?}: {:?}", numbers(&outcomes));
        super::one_copy_each(&taken(&driven.provider, 250).await, 250);
    }
}
