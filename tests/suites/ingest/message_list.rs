//! The list of an app's messages over HTTP.

use push_model::{
    app::{App, AppKey, Scope},
    ids::MessageId,
    ledger::{NewEntry, Plan},
    secret::Secret,
    time::UnixMillis,
};
use serde_json::Value;

use crate::ingest::support::{
    client::{Answer, Request},
    service::{APP, Service},
};

async fn list(service: &Service, query: &str) -> Answer {
    let request = Request::push(service, "").method("GET");
    request.path(&format!("/v1/message/{APP}{query}")).send(service).await
}

async fn begin(service: &Service, count: u64) -> Vec<String> {
    let (app, now) = (AppKey::first(APP.parse().unwrap()), UnixMillis::now());
    let mut ids = Vec::new();
    for _ in 0..count {
        let new = NewEntry {
            message_id: MessageId::issue_named(&app.id),
            app: app.clone(),
            accepted_at: now,
            expires_at: now.plus_seconds(60),
            dedup_nonce: 1,
            keep_until: now.plus_seconds(3600),
            plan: Some(Plan::named()),
            claim: None,
            replaces: None,
            broadcast: None,
        };
        service.ledger.begin(&new).await.unwrap().unwrap();
        ids.push(new.message_id.to_string());
    }
    ids.sort_unstable_by(|a, b| b.cmp(a));
    ids
}

fn ids(answer: &Answer) -> Vec<String> {
    let messages = answer.body["result"]["messages"].as_array().expect("a list of messages");
    messages.iter().map(|one| one["message_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_messages_of_an_app_are_listed_page_by_page() {
    let service = Service::start(&[]).await;
    let empty = list(&service, "").await;
    assert_eq!(empty.body["result"], serde_json::json!({ "messages": [] }));

    let begun = begin(&service, 60).await;
    let first = list(&service, "").await;
    assert_eq!(ids(&first), begun[..50]);
    let one = format!("/v1/message/{APP}/{}", begun[0]);
    let one = Request::push(&service, "").method("GET").path(&one).send(&service).await;
    assert_eq!(first.body["result"]["messages"][0], one.body["result"]);
    let cursor = first.body["result"]["next_cursor"].as_str().unwrap();
    let rest = list(&service, &format!("?limit=200&cursor={cursor}")).await;
    assert_eq!(ids(&rest), begun[50..]);
    assert_eq!(rest.body["result"]["next_cursor"], Value::Null);

    assert_eq!(ids(&list(&service, "?state=accepted&limit=3").await), begun[..3]);
    assert_eq!(ids(&list(&service, "?state=done").await), <[String; 0]>::default());
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_list_with_a_wrong_limit_state_or_cursor_is_refused() {
    let service = Service::start(&[]).await;
    begin(&service, 2).await;
    for query in ["?limit=0", "?limit=201", "?limit=x", "?limit="] {
        list(&service, query).await.expect(400, 400, "limit must be a whole number from 1 to 200");
    }
    list(&service, "?state=gone").await.expect(400, 400, "state must be");
    list(&service, "?stat=done").await.expect(400, 400, "the query has a parameter other");

    let page = list(&service, "?limit=1").await;
    let cursor = page.body["result"]["next_cursor"].as_str().unwrap().to_owned();
    let mut changed = cursor.clone().into_bytes();
    changed[3] = if changed[3] == b'A' { b'B' } else { b'A' };
    let changed = String::from_utf8(changed).unwrap();
    for wrong in [changed.as_str(), "", "x", &cursor[1..]] {
        let answer = list(&service, &format!("?cursor={wrong}")).await;
        answer.expect(400, 400, "the cursor is not one that this app was answered");
    }

    // The cursor of another app.
    let secret = Secret::generate();
    let other = App::new("other".parse().unwrap(), &secret, UnixMillis::now());
    assert!(service.index.create_app(&other).await.unwrap());
    let of_other = Request::new("GET", &format!("/v1/message/other?cursor={cursor}"), "")
        .header("Authorization", secret.expose());
    let answer = of_other.send(&service).await;
    answer.expect(400, 400, "the cursor is not one that this app was answered");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_list_needs_a_secret_that_may_read() {
    let service = Service::start(&["--tune=app-fresh=0s"]).await;
    let (push, read) = (Secret::generate(), Secret::generate());
    service
        .change_app(|app| {
            for (name, secret, scope) in [("p", &push, Scope::Push), ("r", &read, Scope::Read)] {
                let (scopes, now) = ([scope].into_iter().collect(), UnixMillis::now());
                app.add_secret(name.parse().unwrap(), secret, scopes, now, None).unwrap();
            }
        })
        .await;
    let path = format!("/v1/message/{APP}");
    let with =
        |secret: &Secret| Request::new("GET", &path, "").header("Authorization", secret.expose());
    with(&push).send(&service).await.expect(401, 21004, "App Secret illegal: it lacks the scope");
    assert_eq!(with(&read).send(&service).await.body["status"], 200);
    service.stop().await.unwrap();
}
