//! One schedule: some messages, some workers, some faults, then peace, then the oracle.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use push_fanout_worker::{
    BulkLimits, Consuming, Metrics, Parts, Patience, PlanLimits, Transports, TurnLimits,
    WorkerSettings, verdict::Backoff,
};
use push_shared::{
    app::App,
    attributes::{Attribute, Attributes},
    device::{Device, TransportKind},
    envelope::{encode_batch, encode_job},
    ids::{AppId, ClientId, MessageId},
    index::Ledger as _,
    ledger::{Ahead, Recall},
    message::{Audience, Payload},
    pace::{NAMED_AHEAD, SAVED_UP, most_at_once},
    queue::Lane,
    secret::Secret,
    targeting::Targeting,
};
use rand::RngExt;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    index::{SimIndex, Store},
    queue::{Broker, SimQueue},
    transport::{Inbox, SimTransport},
    world::{Faults, Life, World},
};

/// Devices that are sent to between two checkpoints.
const BATCH: usize = 3;
/// How long the world is unkind, in milliseconds of its time.
const TROUBLE: u64 = 1_500;
/// How long everything may take to settle once the world is kind.
const PEACE: Duration = Duration::from_secs(600);
/// How long the broker takes to notice that a process is gone, at most, in milliseconds.
const NOTICE: u64 = 200;

/// The longest that a step takes before its effect and after it, in milliseconds.
const LONGEST_STEP: u64 = 6;
/// At one look in so many a worker is told to stop, and replaced.
const STOPS: u32 = 60;

/// One schedule in so many is of an app with a pace.
const PACED: u32 = 20;

/// A message as the producer knows it.
struct Sent {
    id: MessageId,
    meant: BTreeSet<ClientId>,
    unknown: u64,
    expires: bool,
    recalled: bool,
}

struct Simulation {
    world: Arc<World>,
    store: Arc<Store>,
    broker: Arc<Broker>,
    inbox: Arc<Inbox>,
    sessions: AtomicU64,
    app: AppId,
}

/// A worker process: its life, and its session at the broker.
struct Worker {
    life: Life,
    queue: Arc<SimQueue>,
    stop: CancellationToken,
}

/// The processes of a fleet that is restarted now and then.
struct Fleet {
    serving: Vec<Worker>,
    /// Those that were told to stop: they take nothing more and finish what they have.
    leaving: Vec<Worker>,
}

/// Runs one schedule; gives the fingerprint of everything that happened.
///
/// # Errors
/// What the oracle found wrong.
pub(crate) fn run(seed: u64) -> Result<u64, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(simulate(seed))
}

async fn simulate(seed: u64) -> Result<u64, String> {
    let faults = Faults { crash: 15, lost: 15, cut_off: 20, longest_step: LONGEST_STEP };
    let world = World::new(seed, faults);
    let simulation = Simulation {
        store: Arc::default(),
        broker: Arc::default(),
        inbox: Arc::default(),
        sessions: AtomicU64::new(0),
        app: "app".parse().map_err(|e| format!("{e}"))?,
        world,
    };
    let devices = simulation.devices();
    simulation.store.register(devices.clone(), simulation.world.now());
    let pace = simulation.pace()?;
    tokio::time::sleep(Duration::from_millis(1)).await;

    let mut fleet =
        Fleet { serving: (0..2).map(|_| simulation.worker()).collect(), leaving: Vec::new() };
    let mut sent = Vec::new();
    let until = simulation.world.now().plus(Duration::from_millis(TROUBLE));
    while simulation.world.now() < until {
        if sent.len() < 4 && simulation.chance(1, 8) {
            sent.push(simulation.produce(&devices)?);
        }
        simulation.trouble(&mut fleet, &mut sent).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        simulation.broker.tick(simulation.world.now());
    }
    simulation.world.heal();
    simulation.bury(&mut fleet.leaving);
    for worker in &mut fleet.serving {
        simulation.revive(worker);
    }
    simulation.settle(&sent).await?;
    for worker in &fleet.serving {
        worker.stop.cancel();
    }
    if let Some(broken) = simulation.world.first_broken() {
        return Err(broken);
    }
    sent.iter().try_for_each(|message| simulation.judge(message))?;
    pace.map_or(Ok(()), |pace| simulation.judge_pace(pace))?;
    Ok(simulation.world.trace())
}

impl Simulation {
    fn chance(&self, numerator: u32, denominator: u32) -> bool {
        self.world.random(|r| r.random_ratio(numerator, denominator))
    }

    fn devices(&self) -> Vec<Device> {
        let count = self.world.random(|r| r.random_range(0..24));
        let device = |n: usize| {
            let mut attributes = Attributes::default();
            let country = if self.chance(1, 2) { "CN" } else { "SG" };
            // Both are countries.
            let _ = attributes.set(Attribute::Country, country);
            let client_id = format!("d{n}").parse().ok()?;
            Some(Device { client_id, attributes, transport: TransportKind::Mqtt, token: None })
        };
        (0..count).filter_map(device).collect()
    }

    /// Gives the app a pace, now and then: one that its messages do not fit into.
    fn pace(&self) -> Result<Option<NonZeroU32>, String> {
        if !self.chance(1, PACED) {
            return Ok(None);
        }
        let pace = NonZeroU32::new(self.world.random(|r| r.random_range(1..=8)));
        let secret = Secret::new(&"x".repeat(Secret::MIN_LEN)).map_err(|e| e.to_string())?;
        let app = App::new(self.app.clone(), &secret, self.world.now());
        self.store.keep_app(App { pace, ..app });
        Ok(pace)
    }

    /// Starts a worker process.
    fn worker(&self) -> Worker {
        let life = Life::new(self.world.clone());
        let session = self.sessions.fetch_add(1, Ordering::Relaxed);
        let queue = Arc::new(SimQueue::new(self.broker.clone(), life.clone(), session));
        let index = Arc::new(SimIndex::new(self.store.clone(), life.clone()));
        let transport = Arc::new(SimTransport::new(self.inbox.clone(), life.clone()));
        let (clock, jitter) = (self.world.clone(), self.world.clone());
        let parts = Parts {
            queue: queue.clone(),
            index,
            transports: Transports::default().with(TransportKind::Mqtt, transport),
            metrics: Metrics::default(),
            consuming: Consuming::default(),
            clock: Arc::new(move || clock.now()),
            random: Arc::new(move || jitter.random(RngExt::random)),
        };
        let stop = CancellationToken::new();
        tokio::spawn(push_fanout_worker::run(settings(), parts, PEACE, stop.clone()));
        Worker { life, queue, stop }
    }

    /// Replaces a dead process by a new one, after the broker has noticed.
    fn revive(&self, worker: &mut Worker) {
        if worker.life.is_dead() {
            self.broker.lose_session(worker.queue.session(), &self.world);
            *worker = self.worker();
        }
    }

    /// Lets the broker notice which of these have died.
    fn bury(&self, leaving: &mut Vec<Worker>) {
        for dead in leaving.extract_if(.., |worker| worker.life.is_dead()) {
            self.broker.lose_session(dead.queue.session(), &self.world);
        }
    }

    /// Something happens to the workers, or to the messages.
    async fn trouble(&self, fleet: &mut Fleet, sent: &mut [Sent]) {
        self.bury(&mut fleet.leaving);
        for worker in &mut fleet.serving {
            if worker.life.is_dead() {
                let notice = self.world.random(|r| r.random_range(0..NOTICE));
                tokio::time::sleep(Duration::from_millis(notice)).await;
                self.revive(worker);
            } else if self.world.cuts_off() {
                // It goes on with what it has, and has lost all of it.
                let lost = worker.queue.session();
                worker.queue.reconnect(self.sessions.fetch_add(1, Ordering::Relaxed));
                self.broker.lose_session(lost, &self.world);
            } else if self.chance(1, STOPS) {
                worker.stop.cancel();
                fleet.leaving.push(std::mem::replace(worker, self.worker()));
            }
        }
        if let Some(message) = sent.iter_mut().find(|message| !message.recalled)
            && self.chance(1, 60)
        {
            let index = SimIndex::new(self.store.clone(), Life::new(self.world.clone()));
            message.recalled = true;
            // Whether it was too late, or the call died, is all the same to the oracle.
            let now = self.world.now();
            let ahead = Ahead { accepted_at: now, keep_until: now.plus(PEACE) };
            let recall = Recall { at: now, ahead: Some(ahead) };
            let recall = index.recall(&self.app, &message.id, &recall);
            let _ = tokio::time::timeout(Duration::from_millis(50), recall).await;
        }
    }

    /// A producer's push is accepted, once or (a retry with an idempotency key) twice.
    fn produce(&self, devices: &[Device]) -> Result<Sent, String> {
        let id = MessageId::from_uuid(Uuid::from_u128(self.world.random(RngExt::random)));
        let expires = self.chance(1, 5);
        let time_to_live = if expires { 1 } else { 3600 };
        let mut unknown = 0;
        let (audience, meant) = match self.world.random(|r| r.random_range(0..3)) {
            0 => (Audience::All, devices.iter().map(|d| d.client_id.clone()).collect()),
            1 => {
                let mut targeting = Targeting::everyone();
                targeting.set(Attribute::Country, vec!["CN".into()]);
                let meant = devices.iter().filter(|d| targeting.matches(&d.attributes));
                let meant = meant.map(|d| d.client_id.clone()).collect();
                (Audience::Targeting(targeting), meant)
            }
            _ => {
                unknown = 1;
                let known = devices.iter().filter(|_| self.chance(1, 2));
                let meant: BTreeSet<ClientId> = known.map(|d| d.client_id.clone()).collect();
                let nobody: ClientId = "nobody".parse().map_err(|e| format!("{e}"))?;
                let clients = meant.iter().cloned().chain([nobody]).collect();
                (Audience::Clients(clients), meant)
            }
        };
        let copies = if self.chance(1, 6) { 2 } else { 1 };
        for copy in 0..copies {
            let accepted_at = self.world.now();
            let payload = Payload {
                message_id: id,
                app_id: self.app.clone(),
                kind: 2,
                notification: None,
                data: Some(BTreeMap::new()),
                accepted_at,
                expires_at: accepted_at.plus_seconds(time_to_live),
            };
            let job = encode_job(&payload, &audience, copy).map_err(|e| e.to_string())?;
            self.broker.accept(Lane::Jobs, encode_batch(&[job]));
        }
        Ok(Sent { id, meant, unknown, expires, recalled: false })
    }

    /// Waits until nothing is left to do.
    async fn settle(&self, sent: &[Sent]) -> Result<(), String> {
        let deadline = tokio::time::Instant::now() + PEACE;
        loop {
            self.broker.tick(self.world.now());
            let closed = |sent: &Sent| self.store.entry(&sent.id).is_some_and(|e| e.is_closed());
            if self.broker.is_empty() && sent.iter().all(closed) {
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                let stuck = sent.iter().filter(|s| !closed(s)).map(|s| self.store.entry(&s.id));
                return Err(format!(
                    "not settled: {:?}; queue: {:?}",
                    stuck.collect::<Vec<_>>(),
                    self.broker
                ));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The oracle.
    fn judge(&self, sent: &Sent) -> Result<(), String> {
        let entry = self.store.entry(&sent.id).ok_or("the message has no ledger")?;
        let received = self.inbox.of(&sent.id);
        let wrong = |what: &str| Err(format!("{what}: {entry:?}, received {received:?}"));
        let outcomes = &entry.outcomes;
        if outcomes.total() != entry.targeted {
            return wrong("the equation does not close");
        }
        if entry.targeted != sent.meant.len() as u64 + sent.unknown {
            return wrong("not everyone who was meant was targeted, once");
        }
        if received.keys().any(|client| !sent.meant.contains(client)) {
            return wrong("a device received what was not for it");
        }
        if outcomes.sent > received.len() as u64 {
            return wrong("counted as sent and not received");
        }
        if outcomes.expired > 0 && !sent.expires || outcomes.recalled > 0 && !sent.recalled {
            return wrong("expired or recalled without reason");
        }
        let repeats: u64 = received.values().map(|&times| u64::from(times) - 1).sum();
        let uncounted = received.len() as u64 - outcomes.sent.min(received.len() as u64);
        let faults = self.world.faults_seen.load(Ordering::Relaxed);
        if repeats + uncounted > faults * BATCH as u64 * REPEATERS {
            return wrong("more repeats than the bound");
        }
        if !self.broker.dead_reasons().is_empty() {
            return wrong(&format!("dead letters: {:?}", self.broker.dead_reasons()));
        }
        Ok(())
    }

    /// The oracle of the pace: in no window of time the transport saw more devices than the bound
    /// in [`push_shared::pace`].
    fn judge_pace(&self, pace: NonZeroU32) -> Result<(), String> {
        let batches = self.inbox.batches();
        for (first, (from, _)) in batches.iter().enumerate() {
            let mut devices = 0;
            for (until, count) in batches.iter().skip(first) {
                devices += count;
                let time = until.since(*from) + TAKE_TO_SEND + SAVED_UP + NAMED_AHEAD;
                let most = time.as_millis() * u128::from(pace.get())
                    + 1000 * u128::from(most_at_once(pace));
                if 1000 * devices as u128 > most {
                    return Err(format!("{devices} devices at a pace of {pace}: {batches:?}"));
                }
            }
        }
        Ok(())
    }
}

/// From the time at which a batch is taken to the one at which it is sent: two steps of which the
/// first is whole.
const TAKE_TO_SEND: Duration = Duration::from_millis(3 * LONGEST_STEP);

/// A fault can cut off a worker with this many strands in work, each with a batch in flight.
const REPEATERS: u64 = 4;

fn settings() -> WorkerSettings {
    let ms = Duration::from_millis;
    WorkerSettings {
        job_prefetch: 2,
        task_prefetch: 2,
        bulk: BulkLimits { requests: 1, yields: ms(5) },
        limits: TurnLimits { batch: BATCH, time: ms(25), now_window: ms(5_000) },
        plan: PlanLimits { strands: 3, min_slots: 4 },
        backoff: Backoff { stand_by: ms(150), first: ms(20), longest: ms(500) },
        retry_attempts: 5,
        patience: Patience { first: ms(2), longest: ms(50) },
        ledger_retention: Duration::from_hours(1),
    }
}
