//! One run from its seed to its figures: faults while producers post, a quiet time, the oracle.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    audit::arrivals::Arrivals,
    audit::auditor::{AUDITORS, audit},
    audit::book::Book,
    audit::oracle,
    audit::report::Figures,
    load::audience::{Listeners, Population},
    load::client::Client,
    load::producer::{post, produce},
    load::pushes::Pushes,
    schedule::fault::Fault,
    schedule::history::{History, Struck},
    schedule::plan::{self, Round},
    world::{World, closing_rest},
};

/// Deadline for pushes to flow again after a fault. Generous, because the machine may be slow.
const FLOW_DEADLINE: Duration = Duration::from_secs(90);
/// Deadline of a probe's answer, and then of its arrival, before the next probe is sent.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of reading arrivals while a probe is awaited.
const LOOK: Duration = Duration::from_millis(25);
/// Interval of reading arrivals otherwise.
const READ_EVERY: Duration = Duration::from_millis(500);
/// A run in which no further message closes for this long, beside the time until a broadcast is written
/// off, is stuck. Longer than the three minutes after which RabbitMQ repeats a dead-lettering that was
/// not confirmed.
const STUCK: Duration = Duration::from_secs(240);

/// The parameters of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) seed: u64,
    pub(crate) faults: usize,
    pub(crate) pushes: u32,
    pub(crate) devices: usize,
}

/// State that all tasks of a run share.
pub(crate) struct Run {
    pub(crate) client: Client,
    pub(crate) people: Population,
    pub(crate) pushes: Pushes,
    pub(crate) book: Book,
    arrivals: Mutex<Arrivals>,
    history: Mutex<History>,
    forgettings: Arc<AtomicU64>,
}

impl Run {
    /// The arrivals that have been read.
    pub(crate) fn seen(&self) -> MutexGuard<'_, Arrivals> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_reached_everyone(&self, number: u32) -> bool {
        self.arrivals().of(number).iter().all(|&count| count > 0)
    }

    /// Reads what has arrived by now.
    pub(crate) fn arrivals(&self) -> MutexGuard<'_, Arrivals> {
        let mut arrivals = self.seen();
        arrivals.read(&self.book);
        arrivals
    }

    /// The faults that have ended.
    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how often the index has lost writes. Two reads during which this number is the same have
    /// seen the same index.
    pub(crate) fn forgettings(&self) -> u64 {
        self.forgettings.load(Ordering::SeqCst)
    }
}

/// Runs it; returns the figures, or what went wrong.
pub(crate) async fn run(wish: Wish) -> Result<Figures, String> {
    let Wish { seed, faults, pushes, devices } = wish;
    let people = Population::new(seed, devices);
    let rounds = plan::schedule(seed, faults);
    let count = u32::try_from(rounds.len()).expect("not so many");
    let pushes = Pushes::new(seed, pushes, count, &people);
    let (world, arrivals) = World::start(&people).await;
    let run = Arc::new(Run {
        client: Client::new(&world.stack),
        book: Book::new(pushes.planned()),
        arrivals: Mutex::new(arrivals),
        history: Mutex::default(),
        forgettings: world.forgettings(),
        people,
        pushes,
    });
    let result = under_way(&run, &world, &rounds).await;
    match result.and_then(|figures| run.book.violations().map(|()| figures)) {
        Ok(figures) => Ok(figures),
        Err(wrong) => Err(format!("{wrong}\n{}", world.diagnose(seed).await)),
    }
}

async fn under_way(run: &Arc<Run>, world: &World, rounds: &[Round]) -> Result<Figures, String> {
    let peace = Arc::new(AtomicBool::new(false));
    // These tasks end when this function returns, because dropping the set aborts them.
    let mut background = JoinSet::new();
    for which in 0..AUDITORS {
        background.spawn(audit(run.clone(), which));
    }
    let reader = run.clone();
    background.spawn(async move {
        loop {
            drop(reader.arrivals());
            sleep(READ_EVERY).await;
        }
    });
    let mut producers = JoinSet::new();
    for ingest in 0..2 {
        producers.spawn(produce(run.clone(), ingest, plan::length(rounds), peace.clone()));
    }
    let mut figures = Figures::new();
    for (number, round) in (0..).zip(rounds) {
        // A broadcast for the fault to strike. After the fault before, its answer may take long.
        let opening = post(run, &run.client, run.pushes.opening(number));
        let _ = timeout(PROBE_TIMEOUT, opening).await;
        strike(run, world, round, &mut figures).await?;
    }
    peace.store(true, Ordering::Relaxed);
    producers.join_all().await;
    figures.posted();
    settle(run).await?;
    figures.drained();
    if let Some((program, status)) = world.ended().await.first() {
        return Err(format!("{program} ended with {status} although no fault killed it"));
    }
    // After a fresh push has arrived, no earlier one can arrive that is closed already.
    figures.flowed(flow(run).await?);
    settle(run).await?;
    oracle::judge(run, &mut figures).await?;
    figures.struck(&run.history());
    let dead = world.stack.pushctl(&["dead", "list"]).await;
    if dead != "no dead letters\n" {
        return Err(format!("there are dead letters:\n{dead}"));
    }
    Ok(figures)
}

/// One round of faults, after which pushes must flow.
async fn strike(
    run: &Run,
    world: &World,
    round: &Round,
    figures: &mut Figures,
) -> Result<(), String> {
    let strike = async |fault: Fault| {
        let began = Instant::now();
        world.strike(fault).await.map_err(|error| format!("{fault}: {error}"))?;
        run.history().add(Struck { fault, began, ended: Instant::now() });
        Ok::<_, String>(())
    };
    let second = async {
        match round.second {
            None => Ok(()),
            Some((apart, fault)) => {
                sleep(apart).await;
                strike(fault).await
            }
        }
    };
    let (first, second) = tokio::join!(strike(round.first), second);
    first.and(second)?;
    let flowed = flow(run).await.map_err(|error| format!("after {round}: {error}"))?;
    figures.flowed(flowed);
    println!("{round}: pushes flow again after {flowed:.1?}");
    run.book.violations()?;
    sleep(round.peace).await;
    Ok(())
}

/// Waits until a fresh push has reached all listeners; returns how long that took.
async fn flow(run: &Run) -> Result<Duration, String> {
    let since = Instant::now();
    let mut probes = Vec::new();
    while since.elapsed() < FLOW_DEADLINE {
        let number = run.book.new_number();
        probes.push(number);
        // A probe that hangs in a frozen connection may arrive later.
        let _ = timeout(PROBE_TIMEOUT, post(run, &run.client, number)).await;
        let posted = Instant::now();
        while posted.elapsed() < PROBE_TIMEOUT {
            if probes.iter().any(|&number| run.has_reached_everyone(number)) {
                return Ok(since.elapsed());
            }
            sleep(LOOK).await;
        }
    }
    let arrivals = run.arrivals();
    let seen: Vec<String> = probes
        .iter()
        .map(|&number| {
            let of = arrivals.of(number);
            let missing: Vec<usize> = Listeners::ALL.each().filter(|&l| of[l] == 0).collect();
            let accepted = if run.book.get(number).accepted { "accepted" } else { "not accepted" };
            format!("{accepted} and not at {missing:?}")
        })
        .collect();
    Err(format!("no push flows for {FLOW_DEADLINE:?}; the probes: {}", seen.join(", ")))
}

/// Waits until the ledger of every accepted push is closed.
async fn settle(run: &Run) -> Result<(), String> {
    let mut last = (usize::MAX, Instant::now());
    loop {
        let open = run.book.still_open();
        if open.is_empty() {
            return Ok(());
        }
        if open.len() != last.0 {
            last = (open.len(), Instant::now());
        } else if last.1.elapsed() > STUCK + closing_rest(run.people.devices()) {
            let mut entries = String::new();
            for &number in open.iter().take(5) {
                let id = run.book.get(number).id.unwrap_or_default();
                let entry = run.client.ledger(0, id).await;
                let push = run.pushes.get(number, &run.people);
                entries.push_str(&format!("\n{push:?}: {entry:?}"));
            }
            return Err(format!("{} pushes do not settle:{entries}", open.len()));
        }
        sleep(READ_EVERY).await;
    }
}
