//! The harness keeps what it promises to the other suites.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{
    fs,
    process::{Command, ExitStatus},
    time::{Duration, Instant, SystemTime},
};

use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use push_tests::{
    amqp_url,
    clock::WrongClock,
    eventually, free_port,
    mqtt_proxy::{Manner, MqttProxy},
    mqtt_url, namespace,
    process::{Output, Process},
    process_tree::{Identity, still_running, tree_of},
    redis_cluster_url, redis_url,
    servers::{Mosquitto, RabbitMq, Redis, Refusal},
};
use redis::aio::MultiplexedConnection;
use rustix::process::Signal;
use tokio::time::timeout;

/// Anything that is waited for here takes less.
const DEADLINE: Duration = Duration::from_secs(60);
/// The program under test.
const TEST_SERVERS: &str = env!("CARGO_BIN_EXE_test-servers");

#[tokio::test]
async fn the_servers_of_the_run_answer_at_their_urls() {
    let key = namespace();
    let mut redis = connect(&redis_url()).await;
    redis::cmd("SET").arg(&key).arg(1).query_async::<()>(&mut redis).await.unwrap();

    let url = redis_cluster_url();
    let nodes = url.strip_prefix("redis-cluster://").unwrap().split(',');
    let nodes: Vec<String> = nodes.map(|node| format!("redis://{node}")).collect();
    let mut cluster = redis::cluster::ClusterClient::new(nodes.clone())
        .unwrap()
        .get_async_connection()
        .await
        .unwrap();
    assert_eq!(nodes.len(), 3);
    redis::cmd("SET").arg(&key).arg(1).query_async::<()>(&mut cluster).await.unwrap();

    let channel = open_channel(&amqp_url()).await;
    declare(&channel, &key).await;

    let mqtt = mqtt_url();
    let address = mqtt.strip_prefix("mqtt://").unwrap();
    let (host, port) = address.split_once(':').unwrap();
    let published = Command::new("mosquitto_pub")
        .args(["-V", "5", "-q", "1", "-h", host, "-p", port, "-t", &key, "-m", "hello"])
        .status()
        .unwrap();
    assert!(published.success(), "{published}");
}

#[tokio::test]
async fn a_killed_redis_comes_back_on_its_port_with_its_data() {
    let mut redis = Redis::start().await.unwrap();
    let mut before = connect(&redis.url()).await;
    redis::cmd("SET").arg("key").arg("kept").query_async::<()>(&mut before).await.unwrap();

    redis.kill();
    eventually("the connection breaks", DEADLINE, async || {
        match redis::cmd("PING").query_async::<()>(&mut before).await {
            Ok(()) => Err("it still answers".to_owned()),
            Err(_) => Ok(()),
        }
    })
    .await;
    redis.restart().await.unwrap();

    let mut after = connect(&redis.url()).await;
    let kept: String = redis::cmd("GET").arg("key").query_async(&mut after).await.unwrap();
    assert_eq!(kept, "kept");
}

#[tokio::test]
async fn a_forgetful_redis_comes_back_as_it_was_some_time_before() {
    let mut redis = Redis::start().await.unwrap();
    redis.sync_always().await.unwrap();
    let mut before = connect(&redis.url()).await;
    redis::cmd("SET").arg("old").arg("kept").query_async::<()>(&mut before).await.unwrap();
    let past = redis.note_files().unwrap();
    redis::cmd("SET").arg("new").arg("lost").query_async::<()>(&mut before).await.unwrap();
    // Files that are written anew meanwhile change nothing.
    redis::cmd("BGREWRITEAOF").query_async::<()>(&mut before).await.unwrap();
    redis.kill_and_forget_since(&past).unwrap();
    redis.restart().await.unwrap();

    let mut after = connect(&redis.url()).await;
    let both: [Option<String>; 2] =
        redis::cmd("MGET").arg(&["old", "new"]).query_async(&mut after).await.unwrap();
    assert_eq!(both, [Some("kept".to_owned()), None]);
}

#[tokio::test]
async fn a_redis_refuses_writes_until_it_is_told_to_take_them() {
    let redis = Redis::start().await.unwrap();
    let mut connection = connect(&redis.url()).await;
    let mut set = redis::cmd("SET");
    set.arg("key").arg(1);
    for why in Refusal::ALL {
        redis.refuse_writes(why, true).await.unwrap();
        set.query_async::<()>(&mut connection).await.unwrap_err();
        redis.refuse_writes(why, false).await.unwrap();
        set.query_async::<()>(&mut connection).await.unwrap();
    }
}

#[test]
fn a_wrong_clock_is_so_much_ahead() {
    let clock = WrongClock::compile().unwrap();
    let ahead = Duration::from_hours(1);
    let mut date = Command::new("date");
    let output = date.arg("+%s").envs(clock.ahead(ahead)).output().unwrap();
    let shown: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let wrong = shown.abs_diff(now + ahead.as_secs());
    assert!(wrong < 60, "it is wrong by {wrong} s");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_behind_the_proxy_acknowledges_late_or_never_as_it_is_told() {
    let proxy = MqttProxy::start(&mqtt_url()).await;
    let address = proxy.url();
    let (host, port) = address.trim_start_matches("mqtt://").split_once(':').unwrap();
    let publish = async || {
        let mut publish = tokio::process::Command::new("mosquitto_pub");
        publish.args(["-V", "5", "-q", "1", "-h", host, "-p", port, "-t", "t", "-m", "hello"]);
        publish.kill_on_drop(true).status().await.unwrap().success()
    };
    assert!(publish().await);
    let late = Duration::from_millis(300);
    proxy.answer(Manner::Slow(late));
    let began = Instant::now();
    assert!(publish().await && began.elapsed() > late, "it took {:?}", began.elapsed());
    proxy.answer(Manner::Mute);
    assert!(timeout(10 * late, publish()).await.is_err(), "it was acknowledged");
    proxy.answer(Manner::Prompt);
    assert!(publish().await);
}

#[tokio::test]
async fn a_killed_rabbitmq_comes_back_with_what_it_confirmed() {
    let mut rabbitmq = RabbitMq::start().await.unwrap();
    let channel = open_channel(&rabbitmq.url()).await;
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    declare(&channel, "jobs").await;
    let confirm = channel
        .basic_publish(
            "".into(),
            "jobs".into(),
            BasicPublishOptions::default(),
            b"kept",
            BasicProperties::default().with_delivery_mode(2),
        )
        .await
        .unwrap();
    assert!(confirm.await.unwrap().is_ack());

    rabbitmq.wait_until_known_on_disk("jobs").await;
    rabbitmq.restart().await.unwrap();

    let kept = eventually("the message is there", DEADLINE, async || {
        let channel = open_channel(&rabbitmq.url()).await;
        match channel.basic_get("jobs".into(), BasicGetOptions::default()).await {
            Ok(Some(message)) => Ok(message.delivery.data.clone()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(kept, b"kept");
}

#[tokio::test]
async fn a_frozen_server_is_silent_until_it_is_thawed() {
    let redis = Redis::start().await.unwrap();
    let mut connection = connect(&redis.url()).await;

    redis.freeze().unwrap();
    let ping = redis::cmd("PING");
    let mut frozen = Box::pin(ping.query_async::<()>(&mut connection));
    let silence = tokio::time::timeout(Duration::from_millis(300), &mut frozen).await;
    assert!(silence.is_err(), "a frozen server answered: {silence:?}");
    redis.thaw().unwrap();

    drop(frozen);
    connect(&redis.url()).await;
}

#[tokio::test]
async fn a_dropped_server_is_gone_with_its_children_and_its_folder() {
    let rabbitmq = RabbitMq::start().await.unwrap();
    let mosquitto = Mosquitto::start().await.unwrap();
    let running = [tree_of(rabbitmq.id()).unwrap(), tree_of(mosquitto.id()).unwrap()].concat();
    assert!(running.len() > 4, "servers have children and guards: {running:?}");

    let folders = [rabbitmq.folder().to_owned(), mosquitto.folder().to_owned()];
    drop((rabbitmq, mosquitto));

    all_gone(&running).await;
    assert!(folders.iter().all(|folder| !folder.exists()), "{folders:?}");
}

#[tokio::test]
async fn test_servers_leaves_with_the_exit_code_of_its_command() {
    let mut run = Run::start("exit 7");
    assert_eq!(run.wait_until_ended().await.code(), Some(7));
    run.leaves_nothing(&[]).await;
}

#[tokio::test]
async fn an_interrupted_run_leaves_nothing_behind() {
    let mut run = Run::start("echo started >started; exec sleep 600");
    let running = run.wait_until_started().await;

    run.process.signal_all(Signal::INT);

    assert_eq!(run.wait_until_ended().await.code(), Some(128 + 2));
    run.leaves_nothing(&running).await;
}

#[tokio::test]
async fn a_killed_run_leaves_nothing_behind() {
    let mut run = Run::start("echo started >started; exec sleep 600");
    let running = run.wait_until_started().await;

    run.process.kill();

    run.leaves_nothing(&running).await;
}

#[tokio::test]
#[should_panic(expected = "the tide turns; last seen: it rises")]
async fn a_condition_that_never_holds_fails_with_the_last_state_seen() {
    let never = async || Err::<(), _>("it rises".to_owned());
    eventually("the tide turns", Duration::from_millis(50), never).await;
}

#[test]
fn every_test_has_a_namespace_of_its_own_that_the_service_takes() {
    let (one, two) = (namespace(), namespace());
    assert_ne!(one, two);
    assert_eq!(push_model::namespace::namespace(&one), Ok(one.clone()));
}

#[test]
fn ports_are_given_to_one_owner_at_a_time() {
    let mut ports: Vec<_> = (0..100).map(|_| free_port().unwrap()).collect();
    let mut numbers: Vec<u16> = ports.iter().map(push_tests::Port::number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 100);
    let port = ports.pop().unwrap();
    std::net::TcpListener::bind(port.address()).unwrap();
}

/// A whole run of `test-servers`, whose temporary files can be counted.
struct Run {
    process: Process,
    folder: tempfile::TempDir,
}

impl Run {
    fn start(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("temporary")).unwrap();
        let mut command = Command::new(TEST_SERVERS);
        command
            .args(["--", "sh", "-c", script])
            .env("TMPDIR", folder.path().join("temporary"))
            .current_dir(folder.path());
        let process = Process::spawn(&command, Output::Inherited, None).unwrap();
        Self { process, folder }
    }

    /// Waits until the command runs, and says which processes the run consists of.
    async fn wait_until_started(&self) -> Vec<Identity> {
        eventually("the command runs", DEADLINE, async || {
            fs::read(self.folder.path().join("started")).map_err(|error| error.to_string())
        })
        .await;
        let running = tree_of(self.process.id()).unwrap();
        for part in ["redis-server", "beam", "epmd", "mosquitto", "sleep 600"] {
            let found = running.iter().any(|process| process.command.contains(part));
            assert!(found, "{part} is not in {running:?}");
        }
        running
    }

    async fn wait_until_ended(&mut self) -> ExitStatus {
        eventually("the run ends", DEADLINE, async || {
            self.process.ended().unwrap().ok_or_else(|| "still running".to_owned())
        })
        .await
    }

    /// Once its first process is gone, all that it consisted of and all its files are.
    async fn leaves_nothing(self, running: &[Identity]) {
        let Self { process, folder } = self;
        // The guard of the run's own first process belongs to this test.
        drop(process);
        all_gone(running).await;
        eventually("all temporary files are gone", DEADLINE, async || {
            let left = fs::read_dir(folder.path().join("temporary")).unwrap();
            let left: Vec<_> = left.map(|entry| entry.unwrap().path()).collect();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
    }
}

async fn all_gone(processes: &[Identity]) {
    eventually("all processes are gone", DEADLINE, async || {
        let left = still_running(processes).unwrap();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

async fn connect(url: &str) -> MultiplexedConnection {
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}

async fn open_channel(url: &str) -> Channel {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    connection.create_channel().await.unwrap()
}

/// Declares a quorum queue, the kind that the service uses.
async fn declare(channel: &Channel, queue: &str) {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(queue.into(), options, arguments).await.unwrap();
}
