//! The servers and programs of a run, and how faults strike them.

use std::{
    fs,
    path::PathBuf,
    process::ExitStatus,
    time::{Duration, Instant},
};

use lapin::{Connection, ConnectionProperties, options::QueueDeclareOptions, types::FieldTable};
use push_shared::queue::amqp::queue_names;
use push_tests::{
    devices::Devices,
    servers::{Mosquitto, RabbitMq, Redis},
    service::{Program, built},
    stack::{APP, Servers, Stack},
};
use tokio::{sync::Mutex, time::sleep};

use crate::{
    audience::Population,
    plan::{Blow, Fault, Part},
};

/// A program has this long until it is ready again. It may have to wait for a server that was
/// killed too.
const READY: Duration = Duration::from_secs(120);
/// Between two looks whether it is, and two starts of one that ended at once.
const READY_PAUSE: Duration = Duration::from_millis(200);
/// Devices between two checkpoints of a worker: the most that a fault repeats for each task.
pub(crate) const BATCH: u64 = 500;
/// Envelopes and tasks that a worker has in work at once.
const PREFETCH: u64 = 4;
/// Pushes of one envelope that a worker has in work at once (`JOBS_AT_ONCE` there).
const JOBS_AT_ONCE: u64 = 32;
/// Batches that a worker has in flight at once, at most.
pub(crate) const BATCHES_IN_FLIGHT: u64 = PREFETCH + PREFETCH * JOBS_AT_ONCE;

/// Small steps, so that faults strike in the middle of broadcasts; quick looks, so that a run
/// settles soon.
fn worker_flags() -> Vec<String> {
    let (batch, prefetch) = (BATCH.to_string(), PREFETCH.to_string());
    let flags = [
        ["--batch", &batch],
        ["--job-prefetch", &prefetch],
        ["--task-prefetch", &prefetch],
        ["--strand-min-slots", "4000"],
        ["--strands", "16"],
        ["--turn", "200ms"],
        ["--stand-by", "2s"],
        ["--retry-longest", "4s"],
    ];
    flags.into_iter().flatten().map(str::to_owned).collect()
}

/// Everything that runs. Each part has a lock of its own, so that faults can overlap.
pub(crate) struct World {
    amqp: Mutex<RabbitMq>,
    redis: Mutex<Redis>,
    mqtt: Mutex<Mosquitto>,
    ingests: [Mutex<Program>; 2],
    workers: [Mutex<Program>; 2],
    pub(crate) stack: Stack,
}

impl World {
    /// Starts everything, with the devices in the index and the listeners connected.
    pub(crate) async fn start(people: &Population) -> (Self, Devices) {
        let (amqp, mut redis, mqtt) =
            tokio::try_join!(RabbitMq::start(), Redis::start(), Mosquitto::start()).unwrap();
        let servers = Servers { amqp: amqp.url(), redis: redis.url(), mqtt: mqtt.url() };
        let mut stack = Stack::start(servers).await;
        stack.add_ingest().await;
        // RabbitMQ 3.10 forgets a queue whose name had no time to reach the disk.
        for queue in queue_names(&stack.namespace).unwrap() {
            amqp.wait_until_known_on_disk(&queue).await;
        }
        let mut file = tempfile::NamedTempFile::new().unwrap();
        people.write(&mut std::io::BufWriter::new(&mut file)).unwrap();
        stack.import_file(file.path()).await;
        // Only now: with a million devices to store it would take minutes.
        redis.sync_always().await.unwrap();
        let devices = Devices::listen(&mqtt.url(), APP, &Population::listener_ids()).await;
        let flags = worker_flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let workers = tokio::join!(stack.worker(&flags), stack.worker(&flags));
        let ingests: [Program; 2] = stack.take_ingests().try_into().expect("two ingests");
        let world = Self {
            amqp: Mutex::new(amqp),
            redis: Mutex::new(redis),
            mqtt: Mutex::new(mqtt),
            ingests: ingests.map(Mutex::new),
            workers: [workers.0, workers.1].map(Mutex::new),
            stack,
        };
        (world, devices)
    }

    /// Strikes, waits, and brings the part back. `Err` if it does not come back.
    pub(crate) async fn strike(&self, fault: Fault) -> Result<(), String> {
        let away = || sleep(fault.away);
        let text = |error: &dyn std::fmt::Display| error.to_string();
        match (fault.part, fault.blow) {
            (Part::Ingest(n), blow) => strike_program(&self.ingests[n], blow, away()).await,
            (Part::Worker(n), blow) => strike_program(&self.workers[n], blow, away()).await,
            (Part::RabbitMq, Blow::Kill) => {
                let mut amqp = self.amqp.lock().await;
                amqp.kill();
                away().await;
                amqp.restart().await.map_err(|error| text(&error))
            }
            (Part::RabbitMq, Blow::Freeze) => {
                let amqp = self.amqp.lock().await;
                amqp.freeze().map_err(|error| text(&error))?;
                away().await;
                amqp.thaw().map_err(|error| text(&error))
            }
            (Part::Redis, Blow::Kill) => {
                let mut redis = self.redis.lock().await;
                redis.kill();
                away().await;
                redis.restart().await.map_err(|error| text(&error))
            }
            (Part::Redis, Blow::Freeze) => {
                let redis = self.redis.lock().await;
                redis.freeze().map_err(|error| text(&error))?;
                away().await;
                redis.thaw().map_err(|error| text(&error))
            }
            (Part::Mosquitto, Blow::Kill) => {
                let mut mqtt = self.mqtt.lock().await;
                mqtt.kill();
                away().await;
                mqtt.restart().await.map_err(|error| text(&error))
            }
            (Part::Mosquitto, Blow::Freeze) => {
                let mqtt = self.mqtt.lock().await;
                mqtt.freeze().map_err(|error| text(&error))?;
                away().await;
                mqtt.thaw().map_err(|error| text(&error))
            }
        }
    }

    /// Programs that have ended without having been killed, with their numbers.
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

    /// Who has ended, what RabbitMQ has in its queues, and the folder to which all logs are copied.
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
            // One that never logged has no log.
            let _ = fs::copy(from.join("server.log"), folder.join(name));
        }
        folder
    }
}

async fn strike_program(
    program: &Mutex<Program>,
    blow: Blow,
    away: impl Future<Output = ()>,
) -> Result<(), String> {
    let mut program = program.lock().await;
    match blow {
        Blow::Freeze => {
            program.process().freeze().map_err(|error| error.to_string())?;
            away.await;
            program.process().thaw().map_err(|error| error.to_string())
        }
        Blow::Kill => {
            program.process().kill();
            away.await;
            program.restart();
            revive(&mut program).await
        }
    }
}

/// Waits until a program is ready. One that cannot reach its servers at the start ends, and is
/// started again as a supervisor would do.
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
