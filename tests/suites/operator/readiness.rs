//! `/readyz`: which part of a program does not work and since when, with servers that answer and
//! store nothing, that hang, or that have not started yet; and while a program stops.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use push_test_support::client::{Connection, Request};
use push_tests::{
    RogueBroker,
    broadcast::everyone,
    eventually, free_port, namespace,
    readiness::Readiness,
    redis_url,
    servers::{RabbitMq, Redis, RedisCluster, Refusal, redis_connection},
    service::{Program, request},
    stack::{APP, DEADLINE, Servers, Stack},
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{net::TcpStream, task::JoinSet};

/// Waits until the program reports this state.
async fn until(what: &str, program: &Program, says: impl Fn(&Readiness) -> bool) -> Readiness {
    eventually(what, DEADLINE, async || match program.readiness().await {
        Ok(readiness) if says(&readiness) => Ok(readiness),
        other => Err(format!("{other:?}; log: {}", program.log())),
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_not_ready_while_redis_refuses_writes_and_says_why_and_since_when() {
    let redis = Redis::start().await.unwrap();
    let stack = Stack::start(Servers { redis: redis.url(), ..Servers::shared() }).await;
    let mut worker = stack.worker(&[]).await;
    for refusal in Refusal::ALL {
        redis.refuse_writes(refusal, true).await.unwrap();
        let refused = |seen: &Readiness| {
            seen.code == 503
                && seen.status() == "not_ready"
                && seen.says("index", "failed", "the index refuses for now: ")
        };
        let first = until("the worker is not ready, because of the index", &worker, refused).await;
        // It stays the same state, however often it is checked.
        let checked = &first.part("index")["checked"];
        let later = until("the index is checked again", &worker, |seen| {
            refused(seen) && seen.part("index")["checked"] != *checked
        })
        .await;
        assert_eq!(later.part("index")["since"], first.part("index")["since"]);
        assert_eq!(later.report["since"], later.part("index")["since"]);
        assert_eq!(later.part("queue")["status"], "ok");
        // Pushes of apps that it knows need no write to the index, so ingest only reports it.
        let ingest = until("ingest reports the index", stack.ingest(), |seen| {
            seen.says("index", "failed", "the index refuses for now: ")
        })
        .await;
        assert_eq!((ingest.code, ingest.status()), (200, "ready"));
        redis.refuse_writes(refusal, false).await.unwrap();
        worker.wait_ready().await;
    }
}

async fn connect(stack: &Stack, ingest: usize) -> Connection {
    Connection::open(stack.ingest_url(ingest).replace("http://", "").parse().unwrap()).await
}

fn push_request(stack: &Stack, body: &str) -> Request {
    Request::new("POST", &format!("/v1/message/push/{APP}"), body)
        .header("Content-Type", "application/json")
        .header("Authorization", stack.secret())
}

async fn configure(node: &Redis, setting: &str, value: &str) {
    let client = redis::Client::open(node.url()).unwrap();
    let mut connection = redis_connection(&client).await.unwrap();
    let mut set = redis::cmd("CONFIG");
    set.arg("SET").arg(setting).arg(value).query_async::<()>(&mut connection).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_master_of_a_cluster_is_asked_whether_it_takes_writes() {
    let mut cluster = RedisCluster::start().await.unwrap();
    let stack = Stack::start(Servers { redis: cluster.url(), ..Servers::shared() }).await;
    let mut worker = stack.worker(&[]).await;
    for node in cluster.nodes() {
        let address = node.url().replace("redis://", "");
        configure(node, "maxmemory", "1").await;
        until("the worker names the master that refuses", &worker, |seen| {
            seen.code == 503 && seen.says("index", "failed", &format!("{address}: "))
        })
        .await;
        configure(node, "maxmemory", "0").await;
        worker.wait_ready().await;
        // The other masters serve what they have without this one.
        configure(node, "cluster-require-full-coverage", "no").await;
    }
    let frozen = &cluster.nodes()[1];
    let address = frozen.url().replace("redis://", "");
    frozen.freeze().unwrap();
    until("the worker is ready without the master that is frozen, and names it", &worker, |seen| {
        seen.code == 200 && seen.says("index", "degraded", &format!("{address}: "))
    })
    .await;
    frozen.thaw().unwrap();
    until("all masters store", &worker, |seen| seen.says("index", "ok", "")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_the_ledgers_own_is_a_part_of_its_own() {
    let ledger = Redis::start().await.unwrap();
    let flags = vec!["--ledger-url".to_owned(), ledger.url()];
    let stack = Stack::start_with(Servers::shared(), flags).await;
    let worker = stack.worker(&[]).await;
    ledger.refuse_writes(Refusal::OutOfMemory, true).await.unwrap();
    let seen = until("the worker is not ready, because of the ledger", &worker, |seen| {
        seen.code == 503 && seen.says("ledger", "failed", "OOM")
    })
    .await;
    assert_eq!(seen.part("index")["status"], "ok");
}

/// Settings with checks that take for ever, so that an answer that waited for one would never come.
const ENDLESS: [&str; 5] = [
    "--tune=health-timeout=1h",
    "--tune=health-max-age=2h",
    "--tune=queue-timeout=1h",
    "--tune=amqp-heartbeat=1h",
    "--tune=index-response-timeout=1h",
];

/// Connections that push without a pause, and as many pushes that wait for the queue.
const PUSHERS: usize = 8;
/// Clients that ask at once, and how often each does.
const ASKERS: usize = 32;
const ASKS: usize = 20;

/// Pushes at an `ingest` whose stores hang.
struct Pushers {
    /// Dry runs, which need no store once the app is known.
    dry_runs: JoinSet<()>,
    answered: Arc<AtomicUsize>,
    /// Their pushes wait for a confirm. They are open as long as this.
    _waiting: Vec<Connection>,
}

impl Pushers {
    async fn start(stack: &Stack, ingest: usize) -> Self {
        let mut waiting = Vec::new();
        let (mut dry_runs, answered) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..PUSHERS {
            let mut connection = connect(stack, ingest).await;
            connection.send(push_request(stack, &everyone().to_string()).bytes()).await;
            waiting.push(connection);
            let mut connection = connect(stack, ingest).await;
            let (dry_run, answered) = (dry_run(stack).bytes(), Arc::clone(&answered));
            dry_runs.spawn(async move {
                loop {
                    connection.send(&dry_run).await;
                    assert_eq!(connection.answer().await.http, 200);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self { dry_runs, answered, _waiting: waiting }
    }

    /// Waits until so many dry runs more were answered.
    async fn wait_for(&self, more: usize) {
        let enough = self.answered.load(Ordering::Relaxed) + more;
        eventually("pushes are answered", DEADLINE, async || {
            let answered = self.answered.load(Ordering::Relaxed);
            if answered >= enough { Ok(()) } else { Err(format!("{answered} of {enough}")) }
        })
        .await;
    }

    async fn stop(mut self) {
        self.dry_runs.abort_all();
        while let Some(ended) = self.dry_runs.join_next().await {
            let error = ended.unwrap_err();
            assert!(error.is_cancelled(), "a dry run failed: {error}");
        }
    }
}

fn dry_run(stack: &Stack) -> Request {
    let mut body = everyone();
    body["dry_run"] = json!(true);
    push_request(stack, &body.to_string())
}

/// Waits until the checks of both stores hang, and returns when each of them ended last.
async fn last_checks(program: &Program) -> [Value; 2] {
    let mut last = [Value::Null, Value::Null];
    for (part, checked) in ["queue", "index"].into_iter().zip(&mut last) {
        // The check before it ended long ago.
        *checked = eventually("a check hangs", DEADLINE, async || {
            let checked = program.readiness().await.unwrap().part(part)["checked"].clone();
            let ago = age(&checked);
            if ago > Duration::from_secs(3) { Ok(checked) } else { Err(format!("{ago:?}")) }
        })
        .await;
    }
    last
}

/// Many ask at once. Each is answered while the servers still hang, with what was known before.
async fn ask_often(program: &Program, known: &[Value; 2]) {
    let mut askers = JoinSet::new();
    for _ in 0..ASKERS {
        let (operations, known) = (program.ops_address(), known.clone());
        askers.spawn(async move {
            for _ in 0..ASKS {
                let seen = Readiness::of(&operations).await.unwrap();
                assert_eq!((seen.code, seen.status()), (200, "ready"), "nothing else is known");
                let checked = ["queue", "index"].map(|part| seen.part(part)["checked"].clone());
                assert_eq!(checked, known, "no check can have ended");
            }
        });
    }
    askers.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_is_answered_from_memory_under_load_while_the_stores_hang() {
    let (amqp, redis) = tokio::join!(RabbitMq::start(), Redis::start());
    let (amqp, redis) = (amqp.unwrap(), redis.unwrap());
    let mut stack =
        Stack::start(Servers { amqp: amqp.url(), redis: redis.url(), ..Servers::shared() }).await;
    // A push waits for its confirm as long as a check, and an app that is known is not read again.
    let waits = ["--tune", "publish-timeout=1h", "--tune", "app-fresh=5min"];
    stack.add_ingest_with(&[&ENDLESS[..], &waits].concat()).await;
    let worker = stack.worker(&ENDLESS).await;
    let impatient = stack.worker(&["--tune", "health-timeout=500ms"]).await;
    let mut connection = connect(&stack, 1).await;
    connection.send(dry_run(&stack).bytes()).await;
    assert_eq!(connection.answer().await.http, 200, "the app is known from now on");
    let ingest = stack.take_ingests().pop().unwrap();
    amqp.freeze().unwrap();
    redis.freeze().unwrap();
    let known = last_checks(&ingest).await;
    let pushers = Pushers::start(&stack, 1).await;
    pushers.wait_for(PUSHERS).await;
    ask_often(&ingest, &known).await;
    pushers.wait_for(1).await;
    pushers.stop().await;
    ask_often(&worker, &last_checks(&worker).await).await;
    until("it is known that the servers do not answer", &impatient, |seen| {
        seen.code == 503
            && seen.says("queue", "failed", "no answer within 500ms")
            && seen.says("index", "failed", "no answer within 500ms")
    })
    .await;
    amqp.thaw().unwrap();
    redis.thaw().unwrap();
    until("it is ready again", &impatient, |seen| seen.code == 200).await;
}

/// Returns how long ago a time of an answer is.
fn age(time: &Value) -> Duration {
    let time: push_model::time::UnixMillis = time.as_str().unwrap().parse().unwrap();
    push_model::time::UnixMillis::now().since(time)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_waits_for_servers_that_are_not_there_yet_and_says_for_which() {
    let mut redis = Redis::start().await.unwrap();
    redis.kill();
    let namespace = namespace();
    let (url, amqp, port) = (redis.url(), push_tests::amqp_url(), free_port().unwrap());
    let engines = ["--queue-url", &amqp, "--index-url", &url, "--namespace", &namespace];
    let listen = port.address();
    let ingest = Program::start("ingest", &[&engines[..], &["--listen", &listen]].concat());
    let worker = [&engines[..], &["--transport-mqtt", "off"]].concat();
    let worker = Program::start("fanout-worker", &worker);
    for program in [&ingest, &worker] {
        let seen = until("it waits for the index", program, |seen| {
            seen.code == 503 && seen.says("index", "awaited", "the index cannot be reached")
        })
        .await;
        assert_eq!(seen.status(), "starting");
        let live = format!("http://{}/livez", program.ops_address());
        assert_eq!(request("GET", &live, &[], "").await.unwrap().0, 200);
    }
    assert!(TcpStream::connect(&listen).await.is_err(), "no client waits for an answer");
    redis.restart().await.unwrap();
    for program in [&ingest, &worker] {
        until("it is ready", program, |seen| seen.code == 200).await;
    }
    assert!(TcpStream::connect(&listen).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_ends_when_its_servers_do_not_come() {
    let closed = free_port().unwrap();
    let url = format!("amqp://{}", closed.address());
    let flags = ["--queue-url", &url, "--index-url", &redis_url(), "--tune", "start-deadline=1s"];
    let flags = [&flags[..], &["--transport-mqtt", "off"]].concat();
    let mut worker = Program::start("fanout-worker", &flags);
    let status =
        eventually("the start ends", DEADLINE, async || worker.ended().ok_or_else(|| worker.log()))
            .await;
    assert!(!status.success());
    assert!(worker.log().contains("cannot use the queue at amqp://"), "{}", worker.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_a_broker_starts_only_if_mqtt_is_off_and_says_when_devices_need_it() {
    let mut stack = Stack::start(Servers::shared()).await;
    let mut unset = Program::start("fanout-worker", &stack.engines());
    let status =
        eventually("the start ends", DEADLINE, async || unset.ended().ok_or_else(|| unset.log()))
            .await;
    assert!(!status.success());
    assert!(unset.log().contains("say so with --transport-mqtt off"), "{}", unset.log());

    let off = ["--transport-mqtt", "off"];
    let worker = Program::start("fanout-worker", &[&stack.engines()[..], &off].concat());
    until("it is ready", &worker, |seen| seen.code == 200 && seen.status() == "ready").await;
    stack.add_ingest_with(&off).await;
    let path = format!("/v1/device/{APP}/phone");
    let (code, answer) = stack.call_at(1, "PUT", &path, &[], &json!({})).await;
    assert_eq!(code, 200, "{answer}");
    let warning = &answer["result"]["warnings"][0];
    assert!(warning.as_str().unwrap().contains("nothing over mqtt"), "{answer}");

    let id = stack.push(&everyone()).await;
    let ledger = stack.closed(&id).await;
    assert_eq!(ledger["failed"], json!({"no_transport": 1}), "{ledger}");
    until("the worker is degraded", &worker, |seen| {
        seen.code == 200 && seen.says("transport mqtt", "degraded", "registered for it")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_was_told_to_stop_is_not_ready_at_once_while_it_finishes_its_batch() {
    let broker = RogueBroker::start().await;
    let stack = Stack::start(Servers { mqtt: broker.url(), ..Servers::shared() }).await;
    stack.import_crowd(0, 1).await;
    let mut worker = stack.worker(&["--tune", "mqtt-ack-timeout=60s"]).await;
    broker.behave(|b| b.withholds_acks = true);
    let id = stack.push(&everyone()).await;
    eventually("the broker has the message", DEADLINE, async || match broker.received() {
        1 => Ok(()),
        other => Err(format!("{other}; log: {}", worker.log())),
    })
    .await;
    worker.process().signal_all(Signal::TERM);
    until("the worker drains", &worker, |seen| seen.code == 503 && seen.status() == "draining")
        .await;
    assert!(worker.ended().is_none(), "{}", worker.log());
    broker.behave(|b| b.withholds_acks = false);
    assert!(worker.stop().await.success());
    assert_eq!(stack.closed(&id).await["sent"], 1);
    assert_eq!(broker.received(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ingest_that_was_told_to_stop_is_not_ready_at_once_while_it_answers_its_requests() {
    let mut stack = Stack::start(Servers::shared()).await;
    // An ingest that has read a part of a request.
    let body = json!({"type": 2, "time_to_live": 60, "condition": {"type": 0}}).to_string();
    let mut connection = connect(&stack, 0).await;
    let push = push_request(&stack, &body);
    connection.send([&push.head()[..], &body.as_bytes()[..9]].concat()).await;
    // Answered over another connection: by then it has read what was sent before.
    stack.push(&everyone()).await;
    let mut ingest = stack.take_ingests().pop().unwrap();
    ingest.process().signal_all(Signal::TERM);
    until("ingest drains", &ingest, |seen| seen.code == 503 && seen.status() == "draining").await;
    connection.send(&body[9..]).await;
    assert_eq!(connection.answer().await.http, 200);
    assert!(connection.is_ended().await);
    assert!(ingest.stop().await.success());
}
