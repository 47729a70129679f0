//! `pushctl doctor` of a whole deployment: each fault is set at the real server, and its finding says
//! how to fix it.

use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

use push_tests::{
    amqp_url,
    clock::WrongClock,
    eventually, free_port, mqtt_url, namespace, redis_url,
    servers::{RabbitMq, Redis, Refusal, redis_connection},
    service::{Program, pushctl, pushctl_output},
    stack::{DEADLINE, Servers, Stack},
};
use serde_json::Value;
use tempfile::TempDir;

/// The findings of `doctor`, and its success.
struct Findings {
    all: Vec<Value>,
    ok: bool,
}

async fn doctor(flags: &[&str]) -> Findings {
    let output = pushctl_output(&[&["doctor", "--json"], flags].concat()).await;
    let error = String::from_utf8_lossy(&output.stderr);
    let all: Vec<Value> =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"));
    for finding in &all {
        let remedy = finding["remedy"].as_str().unwrap_or_default();
        assert!(finding["level"] == "ok" || !remedy.is_empty(), "what is to be done? {finding:#}");
    }
    Findings { all, ok: output.status.success() }
}

/// Returns the finding and its remedy, as the table shows them.
fn text(finding: &Value) -> String {
    let [detail, remedy] =
        ["detail", "remedy"].map(|key| finding[key].as_str().unwrap_or_default());
    format!("{detail}; {remedy}")
}

impl Findings {
    /// The finding about this, whose level must be this one and whose text must contain that.
    fn says(&self, subject: &str, level: &str, text: &str) {
        let of_subject: Vec<_> = self.all.iter().filter(|of| of["subject"] == subject).collect();
        let fits = |of: &Value| of["level"] == level && self::text(of).contains(text);
        assert!(of_subject.iter().any(|of| fits(of)), "{subject} {level} {text}: {:#?}", self.all);
    }
}

async fn set(redis: &Redis, words: &[&str]) {
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = redis_connection(&client).await.unwrap();
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]).query_async::<()>(&mut connection).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_the_faults_of_a_redis_and_says_what_to_do_about_each() {
    let redis = Redis::start().await.unwrap();
    let url = redis.url();
    let (amqp, namespace) = (amqp_url(), namespace());
    let flags = ["--queue-url", &amqp, "--index-url", &url, "--namespace", &namespace];
    let findings = doctor(&flags).await;
    for subject in ["redis memory", "hash-max-listpack", "appendonly", "index writes"] {
        findings.says(subject, "ok", "");
    }
    // Redis of the run is on this machine, so its kernel is looked at.
    findings.all.iter().find(|of| of["subject"] == "vm.overcommit_memory").unwrap();

    set(&redis, &["CONFIG", "SET", "hash-max-listpack-entries", "128"]).await;
    set(&redis, &["CONFIG", "SET", "appendonly", "no"]).await;
    set(&redis, &["CONFIG", "SET", "maxmemory", "1mb"]).await;
    set(&redis, &["REPLICAOF", "127.0.0.1", "1"]).await;
    let findings = doctor(&flags).await;
    findings.says("hash-max-listpack", "warning", "set `hash-max-listpack-entries 512`");
    findings.says("appendonly", "warning", "set `appendonly yes`");
    findings.says("redis memory", "warning", "raise maxmemory");
    findings.says("index writes", "error", "make it a master again");
    assert!(!findings.ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_the_right_that_a_user_of_redis_lacks_and_the_rule_that_gives_it() {
    let redis = Redis::start().await.unwrap();
    let namespace = namespace();
    let keys = format!("~{namespace}:*");
    let needed = "+@read +@write +@scripting +@transaction +@connection +time +info +config|get \
                  +cluster +acl|whoami";
    let needed: Vec<&str> = needed.split(' ').collect();
    let folder = TempDir::new().unwrap();
    let data = folder.path().to_str().unwrap();
    let port = redis.url().rsplit_once(':').unwrap().1.trim_end_matches('/').to_owned();
    let with = async |user: &str, rules: &[&str]| {
        set(&redis, &[&["ACL", "SETUSER", user, "on", ">pw"], rules].concat()).await;
        let url = format!("redis://{user}:pw@127.0.0.1:{port}");
        doctor(&["--data-dir", data, "--index-url", &url, "--namespace", &namespace]).await
    };
    let all = [&[keys.as_str()][..], &needed].concat();
    let findings = with("enough", &all).await;
    assert!(findings.all.iter().all(|of| of["subject"] != "redis rights"), "{:?}", findings.all);
    findings.says("index writes", "ok", "stored");

    let findings = with("quiet", &[&all[..], &["-set", "-evalsha"]].concat()).await;
    findings.says("redis rights", "error", "the user quiet may not run set, evalsha");
    findings.says("redis rights", "error", "`ACL SETUSER quiet +set +evalsha`");
    findings.says(
        "index writes",
        "error",
        "'set' command; give its user all that the service needs",
    );
    findings.says("index writes", "error", &format!("ACL SETUSER NAME {keys} +@read"));

    let findings = with("elsewhere", &[&["~other:*"][..], &needed].concat()).await;
    findings.says("redis rights", "error", &format!("`ACL SETUSER elsewhere {keys}`"));

    let findings = with("blind", &[&all[..], &["-info", "-hgetall"]].concat()).await;
    findings.says("redis rights", "error", "may not run hgetall, info");

    set(&redis, &["CONFIG", "SET", "requirepass", "secret"]).await;
    for login in ["quiet:wrong@", "nobody:pw@", ""] {
        let url = format!("redis://{login}127.0.0.1:{port}");
        let findings = doctor(&["--data-dir", data, "--index-url", &url]).await;
        findings.says("index", "error", "check user and password in --index-url");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_tells_a_refused_login_and_another_service_from_a_queue_that_is_away() {
    let amqp = amqp_url();
    let (_, host) = amqp.rsplit_once('@').unwrap();
    let (address, _) = host.split_once('/').unwrap_or((host, ""));
    let folder = TempDir::new().unwrap();
    let data = folder.path().to_str().unwrap();
    for url in
        [format!("amqp://nobody:x@{address}"), format!("amqp://guest:guest@{address}/nowhere")]
    {
        let findings = doctor(&["--data-dir", data, "--queue-url", &url]).await;
        findings.says("queue", "error", "check user, password and virtual host in --queue-url");
    }
    // A listener that answers every connection as a web server does.
    let web = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = web.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        while let Ok((mut client, _)) = web.accept().await {
            let _ = tokio::io::AsyncReadExt::read(&mut client, &mut [0; 1024]).await;
            let answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
            let _ = tokio::io::AsyncWriteExt::write_all(&mut client, answer).await;
        }
    });
    let (amqp, redis) = (format!("amqp://{address}"), format!("redis://{address}"));
    let flags = ["--data-dir", data, "--queue-url", &amqp, "--index-url", &redis];
    let findings = doctor(&flags).await;
    findings.says("queue", "error", "does not speak AMQP");
    findings.says("index", "error", "does not speak the protocol of Redis; check host, port");
    serving.abort();

    let database = folder.path().join("folder.sqlite3");
    fs::create_dir(&database).unwrap();
    let url = format!("sqlite://{}", database.display());
    let findings = doctor(&["--data-dir", data, "--index-url", &url]).await;
    findings.says("index", "error", "folder.sqlite3 is a directory");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_policies_that_drop_messages_of_our_queues() {
    let amqp = RabbitMq::start_with_management().await.unwrap();
    let stack = Stack::start(Servers { amqp: amqp.url(), ..Servers::shared() }).await;
    let engines = stack.engines();
    doctor(&engines).await.says("queue policies", "skipped", "--management");
    let url = amqp.management_url();
    let flags = [&engines[..], &["--management", &url]].concat();
    // The plugin learns of a queue or a policy some seconds later.
    let until = async |level: &str, text: &str| {
        eventually("doctor sees the policies", DEADLINE, async || {
            let findings = doctor(&flags).await;
            let policies: Vec<_> =
                findings.all.iter().filter(|of| of["subject"] == "queue policies").collect();
            let fits = |of: &Value| of["level"] == level && self::text(of).contains(text);
            let found = policies.iter().any(|of| fits(of));
            if found { Ok(findings) } else { Err(format!("{policies:?}")) }
        })
        .await
    };
    until("ok", "none that drops or moves messages").await;
    let short = ["set_policy", "short", ".*", r#"{"max-length":5}"#, "--apply-to", "queues"];
    amqp.control(&short).await.unwrap();
    let findings = until("error", "short sets max-length on ").await;
    findings.says("queue policies", "error", "rabbitmqctl clear_policy short");
    assert!(!findings.ok);
    amqp.control(&["clear_policy", "short"]).await.unwrap();
    until("ok", "none that drops or moves messages").await;
    // A login that the plugin does not know.
    let (_, host) = amqp.url().rsplit_once('@').map(|(_, host)| ((), host.to_owned())).unwrap();
    amqp.control(&["add_user", "quiet", "quiet"]).await.unwrap();
    amqp.control(&["set_permissions", "quiet", ".*", ".*", ".*"]).await.unwrap();
    let quiet = format!("amqp://quiet:quiet@{host}");
    let namespace = &stack.namespace;
    let flags = ["--queue-url", &quiet, "--namespace", namespace, "--management", &url];
    doctor(&[&flags[..], &["--index-url", &redis_url()]].concat()).await.says(
        "queue policies",
        "warning",
        "check --management and its login",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_logs_in_to_the_mqtt_broker_and_tells_a_refusal_from_an_absence() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().to_str().unwrap();
    doctor(&["--data-dir", data, "--mqtt-url", &mqtt_url()]).await.says("MQTT broker", "ok", "");
    let closed = free_port().unwrap();
    let url = format!("mqtt://{}", closed.address());
    let findings = doctor(&["--data-dir", data, "--mqtt-url", &url]).await;
    findings.says("MQTT broker", "error", "start the broker, or check host, port");
    assert!(!findings.ok);

    let broker_folder = TempDir::new().unwrap();
    let broker_data = broker_folder.path().to_str().unwrap();
    pushctl(&["key", "create", "--data-dir", broker_data]).await;
    let [devices, workers] = [(); 2].map(|()| free_port().unwrap().address());
    let flags = ["broker", "--data-dir", broker_data, "--mqtt-listen", &devices];
    let password = "mP4qLw82ZxRt70VbNc5eKyHd31JsUaGf";
    let more = ["--mqtt-worker-listen", &workers, "--mqtt-worker-password", password];
    let _broker = Program::start_ready("pushctl", &[&flags[..], &more].concat()).await;
    let url = |password: &str| format!("mqtt://worker:{password}@{workers}");
    doctor(&["--data-dir", data, "--mqtt-url", &url(password)]).await.says("MQTT broker", "ok", "");
    let findings = doctor(&["--data-dir", data, "--mqtt-url", &url("wrong")]).await;
    findings.says("MQTT broker", "error", "check user and password in --mqtt-url");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_compares_the_clock_of_an_ingest_with_that_of_its_machine() {
    let clock = WrongClock::compile().unwrap();
    let mut stack = Stack::start(Servers::shared()).await;
    let url = stack.ingest_url(0);
    let mut ingest = stack.take_ingests().pop().unwrap();
    let flags = [&stack.engines()[..], &["--server", &url]].concat();
    doctor(&flags).await.says("ingest clock", "ok", "this machine's");
    ingest.set_environment(clock.ahead(Duration::from_mins(1)));
    ingest.restart();
    ingest.wait_ready().await;
    doctor(&flags).await.says("ingest clock", "warning", "ahead of this machine's");
    drop(ingest);
    doctor(&flags).await.says(
        "ingest clock",
        "error",
        "check that --server is the URL of an ingest",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_asks_running_programs_whether_they_are_ready_and_which_version_they_are() {
    let redis = Redis::start().await.unwrap();
    let stack = Stack::start(Servers { redis: redis.url(), ..Servers::shared() }).await;
    let worker = stack.worker(&[]).await;
    let [of_ingest, of_worker] =
        [stack.ingest(), &worker].map(|program| format!("http://{}", program.ops_address()));
    let engines = stack.engines();
    let both = format!("{of_ingest},{of_worker}");
    let flags = [&engines[..], &["--ops", &both]].concat();
    // A worker is ready, but degraded, until it has reached the MQTT broker.
    let findings = eventually("both programs are ready", DEADLINE, async || {
        let findings = doctor(&flags).await;
        let ready = findings
            .all
            .iter()
            .filter(|of| of["subject"] == "program readiness" && of["level"] == "ok");
        if ready.count() == 2 { Ok(findings) } else { Err(format!("{:#?}", findings.all)) }
    })
    .await;
    for (url, program) in [(&of_ingest, "ingest"), (&of_worker, "fanout-worker")] {
        findings.says("program readiness", "ok", &format!("{url} is ready"));
        findings.says("program version", "ok", &format!("{url}: {program} "));
    }
    assert!(findings.ok);

    redis.refuse_writes(Refusal::OutOfMemory, true).await.unwrap();
    // Each program checks the index for itself.
    let findings = eventually("doctor sees that both miss the index", DEADLINE, async || {
        let findings = doctor(&flags).await;
        let failed = findings.all.iter().filter(|of| {
            of["subject"] == "program readiness" && text(of).contains("index is failed: ")
        });
        if failed.count() == 2 { Ok(findings) } else { Err(format!("{:#?}", findings.all)) }
    })
    .await;
    for url in [&of_ingest, &of_worker] {
        findings.says("program readiness", "error", &format!("{url}: index is failed: "));
    }
    findings.says("program readiness", "error", "check the program's --index-url");
    assert!(!findings.ok);

    drop(worker);
    let findings = doctor(&flags).await;
    findings.says("programs", "error", &of_worker);
    findings.says("programs", "error", "start it, or check --ops");
    findings.says("program version", "ok", &format!("{of_ingest}: ingest "));

    // An `ingest` gives no such answer where producers connect.
    let wrong = stack.ingest_url(0);
    let findings = doctor(&[&engines[..], &["--ops", &wrong]].concat()).await;
    findings.says("programs", "error", "is no report");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_was_not_made_is_not_called_ok_and_says_what_it_needs() {
    let (amqp, redis, namespace) = (amqp_url(), redis_url(), namespace());
    let flags = ["--queue-url", &amqp, "--index-url", &redis, "--namespace", &namespace];
    let findings = doctor(&flags).await;
    findings.says("queue policies", "skipped", "--management");
    findings.says("MQTT broker", "skipped", "--mqtt-url");
    findings.says("ingest clock", "skipped", "--server");
    findings.says("programs", "skipped", "--ops");
    findings.says("ledger", "skipped", "start a worker");
    assert!(findings.ok, "what was not looked at is no failure");
    let table = pushctl(&[&["doctor"], &flags[..]].concat()).await;
    let broker = table.lines().find(|line| line.contains("MQTT broker")).unwrap();
    assert!(broker.starts_with("-  "), "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_goes_on_when_a_server_cannot_be_reached() {
    let closed = free_port().unwrap();
    let (amqp, redis) =
        (format!("amqp://{}", closed.address()), format!("redis://{}", closed.address()));
    let namespace = namespace();
    let common = ["--namespace", &namespace];
    let flags = ["--queue-url", &amqp, "--index-url", &redis_url()];
    let findings = doctor(&[&flags[..], &common].concat()).await;
    findings.says("queue", "error", "start it, or check --queue-url");
    findings.says("redis version", "ok", "");
    assert!(!findings.ok);
    let flags = ["--queue-url", &amqp_url(), "--index-url", &redis];
    let findings = doctor(&[&flags[..], &common].concat()).await;
    findings.says("index", "error", "start it, or check --index-url");
    findings.says("rabbitmq version", "ok", "");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_warns_of_open_folders_and_of_passwords_that_other_users_can_read() {
    let folder = TempDir::new().unwrap();
    let (data_dir, file) = (folder.path().join("data"), folder.path().join("mqtt-url"));
    let data = data_dir.to_str().unwrap();
    fs::write(&file, mqtt_url()).unwrap();
    let set_mode = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode(&file, 0o600);
    pushctl(&["--data-dir", data, "app", "create", "news"]).await;
    let flags = ["--data-dir", data, "--mqtt-url-file", file.to_str().unwrap()];
    let findings = doctor(&flags).await;
    assert!(findings.all.iter().all(|of| of["subject"] != "file access" || of["level"] == "ok"));
    set_mode(&file, 0o644);
    set_mode(&data_dir, 0o755);
    let findings = doctor(&flags).await;
    findings.says("file access", "warning", &format!("run chmod 700 {data}"));
    findings.says("file access", "warning", "(--mqtt-url-file) holds a password");
    assert!(findings.ok, "a warning is no failure");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_cannot_be_reached_is_named_and_the_index_is_looked_at_all_the_same() {
    let (amqp, index, namespace) = (amqp_url(), redis_url(), namespace());
    let closed = free_port().unwrap();
    let ledger = format!("redis://{}", closed.address());
    let stores = ["--index-url", &index, "--ledger-url", &ledger, "--namespace", &namespace];
    let findings = doctor(&[&["--queue-url", &amqp], &stores[..]].concat()).await;
    findings.says("ledger", "error", &format!("cannot use the ledger at {ledger}"));
    findings.says("ledger", "error", "check --ledger-url");
    findings.says("index writes", "ok", "");
    assert!(!findings.ok);
    let listed = pushctl_output(&[&stores[..], &["app", "list"]].concat()).await;
    let error = String::from_utf8_lossy(&listed.stderr);
    assert!(error.contains(&format!("cannot use the ledger at {ledger}")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_looks_at_each_store_on_its_own_and_makes_none() {
    let folder = TempDir::new().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("own/ledger.sqlite3"));
    let index = ["--data-dir", data.to_str().unwrap()];
    let of_file = format!("sqlite://{}", file.display());
    let findings = doctor(&[&index[..], &["--ledger-url", &of_file]].concat()).await;
    for store in ["queue", "index", "ledger"] {
        findings.says(store, "warning", "there is none in");
    }
    findings.says("ledger", "warning", "check --ledger-url");
    assert!(findings.ok, "a warning is no failure");
    assert!(!data.exists() && !file.parent().unwrap().exists(), "nothing was made");

    let closed = free_port().unwrap();
    let ledger = format!("redis://{}", closed.address());
    let findings = doctor(&[&index[..], &["--ledger-url", &ledger]].concat()).await;
    findings.says("index", "warning", "there is none in");
    findings.says("ledger", "error", "start it, or check --ledger-url");
    assert!(!findings.ok && !data.exists());

    // The index is there, and the ledger is not.
    pushctl(&[&index[..], &["app", "create", "news"]].concat()).await;
    let findings = doctor(&[&index[..], &["--ledger-url", &of_file]].concat()).await;
    findings.says("index writes", "ok", "");
    findings.says("ledger", "warning", "there is none in");
    assert!(!file.exists(), "nothing was made");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_seen_is_an_error_that_names_the_user_to_look_as() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    // Nothing below a file can be looked at, not even by root, who may look into every folder.
    let data = file.join("data");
    let findings = doctor(&["--data-dir", data.to_str().unwrap()]).await;
    for subject in ["queue", "index"] {
        findings.says(subject, "error", "cannot be looked at");
        findings.says(subject, "error", "run doctor as the user of the service");
    }
    assert!(!findings.ok);
}
