//! Apps that take what they can get of ingest's memory and time, and an app beside them that does
//! nothing wrong.

use std::num::NonZeroU32;

use push_model::{
    app::{App, Scope},
    id_key::IdKey,
    ids::{AppId, MessageId},
    secret::Secret,
    time::UnixMillis,
};
use push_tests::eventually;

use crate::hostile::support::{
    client::{Connection, Request, VALID},
    service::{DEADLINE, Service},
};

/// Another app of a service, which does nothing wrong.
pub(crate) struct Neighbour {
    id: AppId,
    secret: Secret,
}

impl Neighbour {
    pub(crate) async fn of(service: &Service) -> Self {
        let (id, secret): (AppId, _) = ("neighbour".parse().unwrap(), Secret::generate());
        let app = App::new(id.clone(), &secret, UnixMillis::now());
        assert!(service.index.create_app(&app).await.unwrap());
        Self { id, secret }
    }

    pub(crate) fn push(&self, service: &Service, body: impl AsRef<[u8]>) -> Request {
        Request::push(service, body)
            .path(&format!("/v1/message/push/{}", self.id))
            .header("Authorization", self.secret.expose())
    }
}

pub(crate) fn push_of(bytes: usize) -> String {
    format!("{VALID}{}", " ".repeat(bytes - VALID.len()))
}

#[tokio::test]
async fn bodies_that_are_announced_and_do_not_come_take_no_memory_from_others() {
    let service = Service::start(&[]).await;
    let neighbour = Neighbour::of(&service).await;
    let announced = Request::push(&service, push_of(512 * 1024));
    let mut attackers = Vec::new();
    for chunked in [false, true] {
        let head = if chunked { announced.clone().chunked(1).head() } else { announced.head() };
        let first: &[u8] = if chunked { b"1\r\n{\r\n" } else { b"{" };
        for _ in 0..300 {
            let mut attacker = Connection::open(service.address).await;
            attacker.send([&head, first].concat()).await;
            attackers.push(attacker);
        }
    }
    // The last of them are accepted after the first of these is answered.
    for _ in 0..50 {
        let answer = neighbour.push(&service, push_of(100_000)).send(&service).await;
        assert_eq!(answer.http, 200, "{}", answer.text);
    }
    let own = Request::push(&service, VALID).send(&service).await;
    assert_eq!(own.http, 200, "nor from the app itself: {}", own.text);
    drop(attackers);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn an_app_that_fills_its_share_of_the_memory_is_503_and_others_are_served() {
    let flags = [
        "--tune=max-body=64KiB",
        "--max-batch-body=8KiB",
        "--max-batch-lines=8",
        "--max-buffered=256KiB",
    ];
    let service = Service::start(&flags).await;
    let neighbour = Neighbour::of(&service).await;
    let large = push_of(60_000);
    let (begin, end) = large.split_at(59_000);
    let mut attackers = Vec::new();
    let refused = eventually("the app's share is full", DEADLINE, async || {
        // A push that is in work meanwhile may leave too little for one of them.
        let mut attacker = Connection::open(service.address).await;
        attacker.send(Request::push(&service, &large).head()).await;
        attacker.send(begin).await;
        attackers.push(attacker);
        let answer = Request::push(&service, push_of(20_000)).send(&service).await;
        if answer.http == 200 { Err(answer.text) } else { Ok(answer) }
    })
    .await;
    refused.expect(503, 503, "try again: the service is full for this app");
    assert!(refused.header("retry-after").is_some());
    let mut others = Vec::new();
    for _ in 0..2 {
        let mut other = Connection::open(service.address).await;
        other.send(neighbour.push(&service, push_of(30_000)).bytes()).await;
        others.push(other);
    }
    for mut other in others {
        assert_eq!(other.answer().await.http, 200);
    }
    let mut finished = 0;
    for mut attacker in attackers {
        attacker.send(end).await;
        finished += u32::from(attacker.answer().await.http == 200);
    }
    assert!(finished > 0, "what has its memory is finished");
    let again = Request::push(&service, &large).send(&service).await;
    assert_eq!(again.http, 200, "and then it has its share again: {}", again.text);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_body_that_drips_in_ends_before_the_time_for_bodies_is_over() {
    // Far longer than this test waits for an answer.
    let flags = ["--tune=body-timeout=5min", "--tune=min-body-rate=10KiB"];
    let service = Service::start(&flags).await;
    let mut attacker = Connection::open(service.address).await;
    attacker.send(Request::push(&service, push_of(100_000)).head()).await;
    let mut answered = None;
    while answered.is_none() {
        attacker.send(" ").await;
        // The client's pause between two bytes.
        let pause = std::time::Duration::from_millis(100);
        answered = tokio::time::timeout(pause, attacker.answer()).await.ok();
    }
    let message = "the request's body came with fewer than 10240 bytes a second";
    answered.unwrap().expect(408, 408, message);
    assert!(attacker.is_ended().await);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn an_app_calls_no_faster_than_its_limit_and_its_other_calls_take_none_of_its_pushes() {
    let service = Service::start(&[]).await;
    let neighbour = Neighbour::of(&service).await;
    service.limit_app(5).await;
    let device = |n: usize| format!("/v1/device/app/d{n}");
    let put = |n| Request::push(&service, "{}").method("PUT").path(&device(n));
    let calls = [
        put(1).method("GET"),
        put(1).method("DELETE"),
        put(1).method("GET").path("/v1/message/app/01890000-0000-7000-8000-00000000000a"),
        put(1).method("DELETE").path("/v1/message/app/01890000-0000-7000-8000-00000000000a"),
        put(1).without("Content-Type"),
        put(1).path("/v1/device/app/a%20b"),
    ];
    let begun = std::time::Instant::now();
    let mut connection = Connection::open(service.address).await;
    let mut served = 0;
    for n in 0..20 {
        connection.send(put(n).bytes()).await;
        let answer = connection.answer().await;
        for name in ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"] {
            assert!(answer.header(name).is_some_and(|v| v.parse::<u32>().is_ok()), "{name}");
        }
        assert_eq!(answer.header("ratelimit-limit"), Some("5"));
        if answer.http == 200 {
            served += 1;
            continue;
        }
        answer.expect(429, 429, "this app may make 5 calls other than pushes a second");
        assert!(answer.header("retry-after").is_some_and(|v| v.parse::<u32>().is_ok()));
        // The others share the limit, whatever else is wrong with them.
        connection.send(calls[n % calls.len()].bytes()).await;
        served += u64::from(connection.answer().await.http != 429);
    }
    let allowed = 5 + 5 * (begun.elapsed().as_secs() + 1);
    assert!((5..=allowed).contains(&served), "{served} of {allowed}");
    let pushed = Request::push(&service, VALID).send(&service).await;
    assert_eq!((pushed.http, pushed.header("ratelimit-remaining")), (200, Some("4")));
    let other = neighbour.push(&service, VALID).send(&service).await;
    assert_eq!((other.http, other.header("ratelimit-limit")), (200, None));
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_client_that_sends_on_although_it_is_refused_is_answered_no_faster_than_its_limit() {
    let service = Service::start(&[]).await;
    let neighbour = Neighbour::of(&service).await;
    service.limit_app(20).await;
    let push = Request::push(&service, VALID);
    let read = Request::push(&service, "").method("GET").path("/v1/device/app/d");
    let begun = std::time::Instant::now();
    let mut connection = Connection::open(service.address).await;
    let mut refused = 0;
    for request in [&push, &read].into_iter().cycle() {
        connection.send(request.bytes()).await;
        refused += u32::from(connection.answer().await.http == 429);
        let allowed = 20.0 + 20.0 * begun.elapsed().as_secs_f64();
        assert!(f64::from(refused) <= allowed + 1.0, "{refused} of {allowed}");
        if refused == 60 {
            break;
        }
    }
    let other = neighbour.push(&service, VALID).send(&service).await;
    assert_eq!(other.http, 200, "{}", other.text);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn refusals_that_use_up_no_limit_come_no_faster_than_the_limit_either() {
    let service = Service::start(&[]).await;
    let readers = Secret::generate();
    service
        .change_app(|app| {
            app.rate_limit = NonZeroU32::new(20);
            app.disabled = true;
            let scopes = [Scope::Read].into_iter().collect();
            let name = "readers".parse().unwrap();
            app.add_secret(name, &readers, scopes, UnixMillis::now(), None).unwrap();
        })
        .await;
    let disabled = Request::push(&service, VALID);
    let batch = Request::push(&service, VALID)
        .path("/v1/message/push/app/batch")
        .header("Content-Type", "application/x-ndjson");
    let without_scope = Request::push(&service, VALID).header("Authorization", readers.expose());
    let begun = std::time::Instant::now();
    let mut connection = Connection::open(service.address).await;
    for (sent, request) in
        [&disabled, &batch, &without_scope].into_iter().cycle().take(60).enumerate()
    {
        connection.send(request.bytes()).await;
        let answer = connection.answer().await;
        assert!(matches!(answer.http, 401 | 403), "{}", answer.text);
        let allowed = 20.0 + 20.0 * begun.elapsed().as_secs_f64();
        assert!(f64::from(u32::try_from(sent).unwrap()) <= allowed, "{sent} of {allowed}");
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn failed_logins_of_an_address_are_refused_and_its_other_clients_are_served() {
    let service = Service::start(&["--max-failed-logins=1"]).await;
    let neighbour = Neighbour::of(&service).await;
    let invented =
        |n: usize| Request::push(&service, VALID).path(&format!("/v1/message/push/invented-{n}"));
    invented(0).send(&service).await.expect(401, 21004, "App Secret illegal: ");
    let refused = "too many requests from this address had a wrong secret, and so has this one";
    let wrong = Request::push(&service, VALID).header("Authorization", "wrong");
    for request in [invented(1), invented(0), wrong] {
        let answer = request.send(&service).await;
        answer.expect(429, 429, refused);
        assert!(answer.header("retry-after").is_some_and(|v| v.parse::<u32>().is_ok()));
    }
    assert_eq!(service.counter("push_ingest_failed_logins_total"), 4, "refused ones as well");

    // All tests come from one address. No request of the neighbour was served before.
    let other = neighbour.push(&service, VALID).send(&service).await;
    assert_eq!(other.http, 200, "{}", other.text);
    assert_eq!(Request::push(&service, VALID).send(&service).await.http, 200);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn an_app_cannot_recall_ahead_what_another_will_push_with_a_key_that_it_guesses() {
    let service = Service::start(&[]).await;
    let neighbour = Neighbour::of(&service).await;
    let key = "order-1";
    // What the id would be if it followed from app and key alone.
    let guessed = MessageId::derive(&neighbour.id, &IdKey::from([0; 16]), key.as_bytes());
    let recall = |app: &str, id: &str| {
        let path = format!("/v1/message/{app}/{id}");
        Request::push(&service, "").method("DELETE").path(&path)
    };
    let recalled = recall("app", &guessed.to_string()).send(&service).await;
    assert_eq!(recalled.http, 404, "it is no id of the attacker: {}", recalled.text);

    let push = neighbour.push(&service, VALID).header("Idempotency-Key", key);
    let pushed = push.send(&service).await;
    let id = pushed.message_id();
    assert_ne!(id, guessed.to_string());
    assert_eq!(push.send(&service).await.message_id(), id, "a retry is recognised");
    let own = recall("neighbour", id).header("Authorization", neighbour.secret.expose());
    let own = own.send(&service).await;
    assert_eq!((own.http, &own.body["result"]["state"]), (200, &"recalled".into()), "{}", own.text);
    service.stop().await.unwrap();
}
