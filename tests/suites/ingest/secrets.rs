//! The secrets of an app: each is valid for the calls of its scopes, and no other.

use std::{collections::BTreeMap, time::Duration};

use push_index::Index;
use push_model::{
    app::{App, Scope, Scopes},
    ids::{AudienceKind, MessageId},
    secret::Secret,
    time::UnixMillis,
};
use push_tests::eventually;

use crate::ingest::{
    batch_requests::Answers,
    support::{
        client::{Connection, Request, VALID},
        service::{APP, DEADLINE, Service},
    },
};

/// Records are not cached, so that a changed app is seen by the next request.
const UNCACHED: &[&str] = &["--tune=app-fresh=0s"];

/// A call of each route, without a secret, and the scope that it needs.
fn calls() -> Vec<(Request, Scope)> {
    let device = format!("/v1/device/{APP}/d");
    let message = format!("/v1/message/{APP}/{}", MessageId::issue_named(&APP.parse().unwrap()));
    let push = format!("/v1/message/push/{APP}");
    let json = |request: Request| request.header("Content-Type", "application/json");
    let ndjson = |request: Request| request.header("Content-Type", "application/x-ndjson");
    let batch = Request::new("POST", &format!("{push}/batch"), VALID);
    vec![
        (json(Request::new("POST", &push, VALID)), Scope::Push),
        (ndjson(batch), Scope::Push),
        (json(Request::new("POST", &format!("/v1/audience/{APP}"), VALID)), Scope::Read),
        (json(Request::new("PUT", &device, "{}")), Scope::Devices),
        (Request::new("GET", &device, ""), Scope::Devices),
        (json(Request::new("PATCH", &device, "{}")), Scope::Devices),
        (ndjson(Request::new("PATCH", &format!("/v1/device/{APP}"), "{}")), Scope::Devices),
        (Request::new("GET", &format!("/v1/user/{APP}/u"), ""), Scope::Devices),
        (Request::new("DELETE", &format!("/v1/user/{APP}/u"), ""), Scope::Devices),
        (Request::new("DELETE", &device, ""), Scope::Devices),
        (Request::new("GET", &message, ""), Scope::Read),
        (Request::new("GET", &format!("/v1/message/{APP}"), ""), Scope::Read),
        (Request::new("DELETE", &message, ""), Scope::Recall),
    ]
}

fn add(app: &mut App, name: &str, scopes: Scopes, expires_at: Option<UnixMillis>) -> Secret {
    let secret = Secret::generate();
    app.add_secret(name.parse().unwrap(), &secret, scopes, UnixMillis::now(), expires_at).unwrap();
    secret
}

#[tokio::test]
async fn a_secret_is_valid_for_the_calls_of_its_scopes_and_no_other() {
    let service = Service::start(&[]).await;
    let mut secrets = vec![(Secret::new(&service.secret).unwrap(), Scopes::ALL)];
    service
        .change_app(|app| {
            for scope in Scope::ALL {
                let scopes = [scope].into_iter().collect();
                secrets.push((add(app, scope.name(), scopes, None), scopes));
            }
        })
        .await;
    for (secret, scopes) in &secrets {
        for (call, needed) in calls() {
            let call = call.header("Authorization", secret.expose());
            let mut connection = Connection::open(service.address).await;
            connection.send(call.bytes()).await;
            let answer = connection.raw_answer().await;
            if scopes.contains(needed) {
                assert!(matches!(answer.http, 200 | 404), "{scopes}, {needed:?}: {answer:?}");
            } else {
                let begin = format!(
                    r#"{{"status":21004,"message":"App Secret illegal: it lacks the scope {},"#,
                    needed.name()
                );
                assert_eq!(answer.http, 401, "{scopes}, {needed:?}: {answer:?}");
                assert!(answer.text.starts_with(&begin), "{scopes}, {needed:?}: {answer:?}");
            }
        }
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_named_secret_ends_when_it_expires_or_is_revoked_and_the_others_stay() {
    let service = Service::start(UNCACHED).await;
    let push = async |secret: &Secret| {
        Request::push(&service, VALID).header("Authorization", secret.expose()).send(&service).await
    };
    let (mut expired, mut revoked, mut kept) = (None, None, None);
    let later = UnixMillis::now().plus(Duration::from_secs(3600));
    service
        .change_app(|app| {
            let scopes = [Scope::Push].into_iter().collect();
            expired = Some(add(app, "expired", scopes, Some(UnixMillis::now())));
            revoked = Some(add(app, "revoked", scopes, Some(later)));
            kept = Some(add(app, "kept", scopes, Some(later)));
        })
        .await;
    let [expired, revoked, kept] = [expired, revoked, kept].map(Option::unwrap);
    push(&expired).await.expect(401, 21004, "App Secret illegal: it is not a secret of this app");
    push(&revoked).await.expect(200, 200, "OK");
    service.change_app(|app| assert!(app.revoke_secret(&"revoked".parse().unwrap()))).await;
    push(&revoked).await.expect(401, 21004, "App Secret illegal: it is not a secret of this app");
    push(&kept).await.expect(200, 200, "OK");
    Request::push(&service, VALID).send(&service).await.expect(200, 200, "OK");
    service.stop().await.unwrap();
}

/// The last uses that the index knows of.
async fn uses(index: &dyn Index) -> BTreeMap<String, UnixMillis> {
    let app = index.app(&APP.parse().unwrap()).await.unwrap().unwrap();
    index.secret_uses(&(&app).into()).await.unwrap()
}

#[tokio::test]
async fn the_last_use_of_each_secret_is_written_to_the_index_after_a_while() {
    let service = Service::start(&["--tune=activity-interval=20ms", "--tune=app-fresh=0s"]).await;
    let mut phones = None;
    service.change_app(|app| phones = Some(add(app, "phones", Scopes::ALL, None))).await;
    let phones = phones.unwrap();
    let before = UnixMillis::now();
    let push = Request::push(&service, VALID).header("Authorization", phones.expose());
    push.send(&service).await.expect(200, 200, "OK");
    let after = UnixMillis::now();
    let written = eventually("the use is written", DEADLINE, async || {
        let uses = uses(&*service.index).await;
        uses.get("phones").copied().ok_or_else(|| format!("{uses:?}"))
    })
    .await;
    assert!((before..=after).contains(&written), "{written}");
    assert_eq!(uses(&*service.index).await.len(), 1, "the default secret was not used");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_service_that_stops_writes_the_last_uses_that_it_still_has() {
    let service = Service::start(&["--tune=activity-interval=1h"]).await;
    Request::push(&service, VALID).send(&service).await.expect(200, 200, "OK");
    let index = service.index.clone();
    assert_eq!(uses(&*index).await.len(), 0, "not one write for each request");
    service.stop().await.unwrap();
    assert_eq!(uses(&*index).await.keys().collect::<Vec<_>>(), ["default"]);
}

#[tokio::test]
async fn the_name_of_its_secret_travels_with_a_broadcast_and_with_no_other_push() {
    let service = Service::start(UNCACHED).await;
    let mut secret = None;
    service
        .change_app(|app| {
            secret = Some(add(app, "newsroom", [Scope::Push].into_iter().collect(), None));
        })
        .await;
    let secret = secret.unwrap();
    let push = |condition: &str| {
        format!(
            r#"{{"type":1,"time_to_live":60,"condition":{condition},"notification":{{"notification_type":1,"title":"t"}}}}"#
        )
    };
    let (all, named) = (push(r#"{"type":0}"#), push(r#"{"type":2,"client_ids":["d"]}"#));
    let path = format!("/v1/message/push/{APP}");
    for (path, media_type, body) in [
        (path.clone(), "application/json", all.clone()),
        (path.clone(), "application/json", named.clone()),
    ] {
        let request = Request::new("POST", &path, &body).header("Content-Type", media_type);
        let answer = request.header("Authorization", secret.expose()).send(&service).await;
        assert!(answer.text.starts_with("{\"status\":200"), "{answer:?}");
    }
    let lines = format!("{all}\n{named}\n");
    let request = Request::new("POST", &format!("{path}/batch"), &lines)
        .header("Content-Type", "application/x-ndjson")
        .header("Authorization", secret.expose());
    assert_eq!(Answers::to(&service, &request).await.lines.len(), 2);
    let jobs = service.jobs(4).await;
    let named_by = |is_broadcast: bool| {
        let of_kind = jobs
            .iter()
            .filter(|job| (job.audience.kind() == AudienceKind::Broadcast) == is_broadcast);
        of_kind.map(|job| job.sent_by.as_deref()).collect::<Vec<_>>()
    };
    assert_eq!(named_by(true), [Some("newsroom"); 2]);
    assert_eq!(named_by(false), [None; 2]);
    service.stop().await.unwrap();
}
