//! Walks a small world completely: every list of up to so many faults, each at every step at
//! which it makes sense.
//!
//! A run with a given list is deterministic, and records which faults could have struck at each
//! step. So its children are the same list and one more fault, at the step of the last one or
//! later; every list is reached in exactly one way.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use push_tests::invariants::{Rule, Violation};

use crate::{
    drivers::small::Small,
    faults::choices::{Choices, Schedule, read, write},
    faults::set::Faults,
    oracle::judge::judge,
    world::{World, lock},
};

/// Time that a world may take until nothing is left to do.
const PEACE: Duration = Duration::from_mins(30);
/// A run with more steps than this repeats something without a pause.
const MOST_STEPS: u32 = 5_000;
/// A walk ends after this many failures.
const FAILURES: usize = 5;

/// The result of a run.
struct Ran {
    violations: Vec<Violation>,
    could: Vec<Faults>,
}

fn run(small: Small, schedule: Schedule, record: bool) -> Ran {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let world = World::new(Choices::listed(schedule, small.search, record), small.settings());
        small.begin(&world);
        let mut violations = Vec::new();
        if !world.quiet(PEACE).await {
            violations.push(Violation::new(Rule::NoEnd, lock(&world.broker).rest()));
        }
        violations.extend(judge(&world));
        let steps = world.steps();
        if steps > MOST_STEPS {
            let seen = format!("{steps} steps");
            violations.push(Violation::new(Rule::NoEnd, seen));
        }
        let mut choices = lock(&world.choices);
        let not_struck = write(choices.not_struck());
        assert!(not_struck.is_empty(), "there is no such step: {not_struck}");
        world.end();
        Ran { violations, could: choices.recorded() }
    })
}

/// Runs one schedule, as a walk prints it: `broadcast; 17:crash-after 23:forget-1`.
///
/// # Errors
/// Why the schedule cannot be read, or the violations that the oracle found.
pub(crate) fn replay(text: &str) -> Result<(), String> {
    let (name, schedule) = text.split_once(';').ok_or("a world, then a semicolon")?;
    let small = Small::named(name).ok_or_else(|| format!("no world is called {name}"))?;
    let ran = run(small, read(schedule)?, false);
    if ran.violations.is_empty() { Ok(()) } else { Err(listed(&ran.violations)) }
}

fn listed(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The same list with one more fault, in every possible way.
fn children<'a>(
    schedule: &'a Schedule,
    could: &'a [Faults],
) -> impl Iterator<Item = Schedule> + 'a {
    let last = schedule.last().copied();
    let from = last.map_or(0, |(step, _)| step);
    let steps = (0..).zip(could).skip_while(move |(step, _)| *step < from);
    let steps = steps.filter(|_| schedule.iter().all(|(_, struck)| !struck.is_alone()));
    steps.flat_map(move |(step, faults)| {
        let here = schedule.iter().filter(move |(at, _)| *at == step).map(|(_, fault)| *fault);
        let fits = move |fault: &crate::faults::fault::Fault| {
            here.clone().all(|struck| fault.goes_with(struck) && *fault > struck)
                && (last.is_none() || !fault.is_alone())
        };
        faults.each().filter(fits).map(move |fault| {
            let mut child = schedule.clone();
            child.push((step, fault));
            child
        })
    })
}

/// The results of a walk so far.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    schedules: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

impl Walked {
    /// Runs a list and all of its extensions by up to `more` faults.
    fn walk(&self, small: Small, schedule: &Schedule, more: usize) {
        if self.wrong.lock().unwrap().len() >= FAILURES {
            return;
        }
        let ran = run(small, schedule.clone(), more > 0);
        self.schedules.fetch_add(1, Ordering::Relaxed);
        if !ran.violations.is_empty() {
            let replay = format!("PUSH_SIM_REPLAY=\"{}; {}\"", small.name, write(schedule));
            let text = format!("{replay}\n{}", listed(&ran.violations));
            self.wrong.lock().unwrap().push(text);
            return;
        }
        if more > 0 {
            for child in children(schedule, &ran.could) {
                self.walk(small, &child, more - 1);
            }
        }
    }
}

/// Walks a world with up to `faults` faults, on all processors, and prints the figures.
///
/// # Errors
/// The first schedules that break a rule.
pub(crate) fn walk(small: Small, faults: usize) -> Result<(), String> {
    let begun = Instant::now();
    let walked = Walked::default();
    let calm = Schedule::new();
    walked.walk(small, &calm, 0);
    let first = run(small, calm.clone(), true).could;
    let first: Vec<Schedule> = children(&calm, &first).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(schedule) = first.get(next.fetch_add(1, Ordering::Relaxed)) {
            if faults > 0 {
                walked.walk(small, schedule, faults - 1);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let Walked { schedules, wrong } = walked;
    let (name, schedules, time) = (small.name, schedules.into_inner(), begun.elapsed());
    println!("{name}: {faults} faults, {schedules} schedules, {time:.1?}");
    let wrong = wrong.into_inner().unwrap();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n\n")) }
}
