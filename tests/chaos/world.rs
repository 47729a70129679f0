//! The servers and programs of a run, and how faults strike them.

use std::{
    error::Error,
    fs,
    path::PathBuf,
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use lapin::{Connection, ConnectionProperties, options::QueueDeclareOptions, types::FieldTable};
use push_queue::amqp::queue_names;
use push_tests::{
    clock::WrongClock,
    devices::Devices,
    mqtt_proxy::{AckMode, MqttProxy},
    servers::{Kind, Mosquitto, RabbitMq, Redis, Server},
    service::{Program, built},
    stack::{APP, Servers, Stack},
};
use tokio::{sync::Mutex, time::sleep};

use crate::{
    audit::arrivals::Arrivals,
    load::audience::Population,
    providers::Providers,
    schedule::fault::{Blow, Fault, Part},
};

/// Deadline for a program to be ready again. It may have to wait for a server that was
/// killed too.
const READY: Duration = Duration::from_secs(120);
/// The pause between two checks of that, and between two starts of a program that ended at once.
const READY_PAUSE: Duration = Duration::from_millis(200);
/// Devices of a batch: the most that a fault repeats for each task.
pub(crate) const BATCH: u64 = 500;
/// Prefetch of a worker: envelopes and tasks in work at once.
const PREFETCH: u64 = 4;
/// Pushes of one envelope that a worker has in work at once (its `JOBS_AT_ONCE`).
const JOBS_AT_ONCE: u64 = 32;
/// The most batches that a worker has in flight at once.
pub(crate) const BATCHES_IN_FLIGHT: u64 = PREFETCH + PREFETCH * JOBS_AT_ONCE;

/// The time between the two closing checks that must find a broadcast closed: more than the index
/// ever loses.
const CLOSING_CHECK: &str = "closing-check=4s";
/// The time after its expiry at which a broadcast is written off: longer than any fault delays a message,
/// and than two busy workers take to count the devices of the broadcasts that wait before it. On a slow
/// machine RabbitMQ alone is away for more than a minute.
pub(crate) fn closing_rest(devices: usize) -> Duration {
    Duration::from_secs(120 + devices as u64 / 5000)
}

/// Settings of the workers: small batches and partitions, so that faults strike in the middle of
/// broadcasts, and short intervals, so that a run ends soon.
fn worker_flags(devices: usize) -> Vec<String> {
    let rest = format!("closing-rest={}s", closing_rest(devices).as_secs());
    let (batch, prefetch) = (BATCH.to_string(), PREFETCH.to_string());
    let flags = [
        ["--batch", &batch],
        ["--tune", &format!("job-prefetch={prefetch}")],
        ["--task-prefetch", &prefetch],
        ["--tune", "partition-min-slots=4000"],
        ["--partitions", "16"],
        ["--tune", "run-time=200ms"],
        ["--tune", "retry-longest=4s"],
        ["--tune", "mqtt-ack-timeout=5s"],
        ["--tune", CLOSING_CHECK],
        ["--tune", &rest],
    ];
    flags.into_iter().flatten().map(str::to_owned).collect()
}

/// Why a part does not come back after a fault.
type Struck = Result<(), Box<dyn Error + Send + Sync>>;

/// RabbitMQ's memory threshold, and its usual value.
const MEMORY: &str = "set_vm_memory_high_watermark";
const USUAL_MEMORY: &str = "0.4";

/// The servers and programs of a run. Each part has its own lock, so that faults can overlap.
pub(crate) struct World {
    amqp: Mutex<RabbitMq>,
    redis: Mutex<Redis>,
    mqtt: Mutex<Mosquitto>,
    /// The proxy that the workers connect to in place of Mosquitto.
    mqtt_proxy: MqttProxy,
    providers: Providers,
    clock: WrongClock,
    forgettings: Arc<AtomicU64>,
    ingests: [Mutex<Program>; 2],
    workers: [Mutex<Program>; 2],
    pub(crate) stack: Stack,
}

impl World {
    /// Starts everything, with the devices in the index and the listeners connected.
    pub(crate) async fn start(people: &Population) -> (Self, Arrivals) {
        let (amqp, mut redis, mqtt) =
            tokio::try_join!(RabbitMq::start(), Redis::start(), Mosquitto::start()).unwrap();
        let mqtt_proxy = MqttProxy::start(&mqtt.url()).await;
        let servers = Servers { amqp: amqp.url(), redis: redis.url(), mqtt: mqtt_proxy.url() };
        let mut stack = Stack::start(servers).await;
        stack.add_ingest().await;
        let (providers, taken) = Providers::start().await;
        providers.set_accounts(&stack).await;
        // RabbitMQ 3.10 loses a queue whose declaration had no time to reach the disk.
        for queue in queue_names(&stack.namespace).unwrap() {
            amqp.wait_until_known_on_disk(&queue).await;
        }
        let mut file = tempfile::NamedTempFile::new().unwrap();
        people.write(&mut std::io::BufWriter::new(&mut file)).unwrap();
        stack.import_file(file.path()).await;
        // Not before the import: with a million devices to store it would take minutes.
        redis.sync_always().await.unwrap();
        let devices = Devices::listen(&mqtt.url(), APP, &Population::mqtt_ids()).await;
        let mut flags = worker_flags(people.devices());
        flags.extend(providers.worker_flags().await);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let workers = tokio::join!(stack.worker(&flags), stack.worker(&flags));
        let ingests: [Program; 2] = stack.take_ingests().try_into().expect("two ingests");
        let world = Self {
            amqp: Mutex::new(amqp),
            redis: Mutex::new(redis),
            mqtt: Mutex::new(mqtt),
            mqtt_proxy,
            providers,
            clock: WrongClock::compile().unwrap(),
            forgettings: Arc::default(),
            ingests: ingests.map(Mutex::new),
            workers: [workers.0, workers.1].map(Mutex::new),
            stack,
        };
        (world, Arrivals::new(devices, taken))
    }

    /// Places a fault, waits for its duration, and brings the part back. `Err` if it does not come
    /// back.
    pub(crate) async fn strike(&self, fault: Fault) -> Result<(), String> {
        let Fault { part, blow, away } = fault;
        match part {
            Part::Ingest(n) => self.strike_program(&self.ingests[n], blow, away).await,
            Part::Worker(n) => self.strike_program(&self.workers[n], blow, away).await,
            Part::RabbitMq => self.strike_rabbitmq(blow, away).await,
            Part::Redis => self.strike_redis(blow, away).await,
            Part::Mosquitto => self.strike_mosquitto(blow, away).await,
            Part::Provider(provider) => Ok(self.providers.strike(provider, blow, away).await?),
        }
        .map_err(|error| error.to_string())
    }

    async fn strike_program(&self, program: &Mutex<Program>, blow: Blow, away: Duration) -> Struck {
        let mut program = program.lock().await;
        match blow {
            Blow::Freeze => {
                program.process().freeze()?;
                sleep(away).await;
                return Ok(program.process().thaw()?);
            }
            Blow::Kill => {}
            Blow::Clock(ahead) => program.set_environment(self.clock.ahead(ahead)),
            other => return no_such(other),
        }
        program.process().kill();
        sleep(away).await;
        program.restart();
        Ok(revive(&mut program).await?)
    }

    async fn strike_rabbitmq(&self, blow: Blow, away: Duration) -> Struck {
        let mut amqp = self.amqp.lock().await;
        match blow {
            Blow::Alarm => {
                amqp.control(&[MEMORY, "0"]).await?;
                sleep(away).await;
                amqp.control(&[MEMORY, USUAL_MEMORY]).await?;
                Ok(())
            }
            other => strike_server(&mut amqp, other, away).await,
        }
    }

    async fn strike_redis(&self, blow: Blow, away: Duration) -> Struck {
        let mut redis = self.redis.lock().await;
        match blow {
            Blow::Refuse(why) => {
                redis.refuse_writes(why, true).await?;
                sleep(away).await;
                Ok(redis.refuse_writes(why, false).await?)
            }
            Blow::Forget(what) => {
                let snapshot = redis.snapshot_files()?;
                sleep(what).await;
                redis.kill_and_restore(&snapshot)?;
                // Counted while Redis cannot answer, so that each reading knows which index it saw.
                self.forgettings.fetch_add(1, Ordering::SeqCst);
                sleep(away).await;
                Ok(redis.restart().await?)
            }
            other => strike_server(&mut redis, other, away).await,
        }
    }

    async fn strike_mosquitto(&self, blow: Blow, away: Duration) -> Struck {
        let mut mqtt = self.mqtt.lock().await;
        match blow {
            Blow::Answer(manner) => {
                self.mqtt_proxy.set_ack_mode(manner);
                sleep(away).await;
                self.mqtt_proxy.set_ack_mode(AckMode::Prompt);
                Ok(())
            }
            other => strike_server(&mut mqtt, other, away).await,
        }
    }

    /// Returns how often Redis has lost writes.
    pub(crate) fn forgettings(&self) -> Arc<AtomicU64> {
        self.forgettings.clone()
    }

    /// Programs that ended by themselves, with their numbers.
    pub(crate) async fn ended(&self) -> Vec<(String, ExitStatus)> {
        let mut ended = Vec::new();
        for (name, program) in self.programs() {
            if let Some(status) = program.lock().await.ended() {
                ended.push((name, status));
            }
        }
        ended
    }

    fn programs(&self) -> impl Iterator<Item = (String, &Mutex<Program>)> {
        let ingests = self.ingests.iter().enumerate().map(|(n, p)| (format!("ingest-{n}"), p));
        let workers = self.workers.iter().enumerate().map(|(n, p)| (format!("worker-{n}"), p));
        ingests.chain(workers)
    }

    /// For a failed run: the programs that ended, the depth of RabbitMQ's queues, and the folder to
    /// which all logs are copied.
    pub(crate) async fn diagnose(&self, seed: u64) -> String {
        let ended = self.ended().await;
        let amqp = self.amqp.lock().await;
        let depths = self.depths(&amqp.url()).await.unwrap_or_else(|error| error.to_string());
        let columns = ["name", "state", "leader", "consumers", "messages_ready"];
        let list = [&["list_queues", "--silent"], &columns[..], &["messages_unacknowledged"]];
        let list = amqp.control(&list.concat()).await.unwrap_or_else(|error| error);
        let folder = self.keep_logs(seed, &amqp).await;
        let logs = folder.display();
        format!("ended: {ended:?}\ndepths:\n{depths}\n{list}\nlogs are in {logs}")
    }

    async fn depths(&self, url: &str) -> Result<String, lapin::Error> {
        let connection = Connection::connect(url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let mut lines = Vec::new();
        for name in queue_names(&self.stack.namespace).unwrap() {
            let arguments = FieldTable::default();
            let queue = channel.queue_declare(name.as_str().into(), options, arguments).await?;
            let (ready, consumers) = (queue.message_count(), queue.consumer_count());
            lines.push(format!("{name}: {ready} ready, {consumers} consumers"));
        }
        Ok(lines.join("\n"))
    }

    async fn keep_logs(&self, seed: u64, amqp: &RabbitMq) -> PathBuf {
        let programs = built("ingest");
        let folder = programs.parent().expect("a folder").join(format!("chaos-seed-{seed}"));
        fs::create_dir_all(&folder).expect("a folder for the logs");
        for (name, program) in self.programs() {
            fs::write(folder.join(name), program.lock().await.log()).expect("a log");
        }
        let redis = self.redis.lock().await;
        let mqtt = self.mqtt.lock().await;
        let servers = [("rabbitmq", amqp.folder()), ("redis", redis.folder())];
        for (name, from) in servers.into_iter().chain([("mosquitto", mqtt.folder())]) {
            // A program that logged nothing has no file.
            let _ = fs::copy(from.join("server.log"), folder.join(name));
        }
        folder
    }
}

/// Faults that every server can have.
async fn strike_server<K: Kind>(server: &mut Server<K>, blow: Blow, away: Duration) -> Struck {
    match blow {
        Blow::Freeze => {
            server.freeze()?;
            sleep(away).await;
            Ok(server.thaw()?)
        }
        Blow::Kill => {
            server.kill();
            sleep(away).await;
            Ok(server.restart().await?)
        }
        other => no_such(other),
    }
}

fn no_such(blow: Blow) -> Struck {
    Err(format!("{blow:?} is not for this part").into())
}

/// Waits until a program is ready. A program that cannot reach its servers at the start ends; it
/// is started again, as a supervisor would do.
async fn revive(program: &mut Program) -> Result<(), String> {
    let since = Instant::now();
    loop {
        if program.ended().is_some() {
            program.restart();
        }
        match program.is_ready().await {
            Ok(()) => return Ok(()),
            Err(seen) if since.elapsed() > READY => {
                return Err(format!("a restarted program is not ready: {seen}"));
            }
            Err(_) => sleep(READY_PAUSE).await,
        }
    }
}
