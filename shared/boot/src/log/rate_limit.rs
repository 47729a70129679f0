//! Bounds how often one place in the code is logged, so that no client can fill the log with
//! repeats.
//!
//! Each callsite gets [`LINES`] lines per [`WINDOW`]. Further events are counted, and one line at the end
//! of the window says how many there were. Audit events are never suppressed, and neither are debug and
//! trace events, which an operator has to ask for.
//!
//! A thread writes the counts: an attack that ends leaves no later event to report it with.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use tracing::{
    Event, Level, Subscriber,
    callsite::Identifier,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{Layer, layer::Context};

use crate::audit;

/// Lines that one callsite may log per [`WINDOW`].
const LINES: u64 = 20;
/// The time for which lines are counted.
const WINDOW: Duration = Duration::from_secs(10);
/// Callsites that are told apart. A program has some hundreds; all further ones share a count.
const CALLSITES: usize = 4096;

/// Suppresses what a callsite logs too often.
#[derive(Debug, Default, Clone)]
pub(super) struct RateLimit(Arc<Mutex<Callsites>>);

type Callsites = HashMap<Key, Count>;

/// The events that are counted together. Libraries that use the crate `log` share one callsite per level, so their
/// events are told apart by module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Callsite(Identifier),
    Module(Level, String),
    Others,
}

/// The events of one callsite.
#[derive(Debug)]
struct Count {
    level: Level,
    module: String,
    /// Line in the source file.
    line: Option<u32>,
    began: Instant,
    logged: u64,
    suppressed: u64,
}

/// Events that were not logged.
#[derive(Debug, PartialEq, Eq)]
struct Suppressed {
    level: Level,
    module: String,
    line: Option<u32>,
    events: u64,
}

impl RateLimit {
    /// A limit whose counts are written to the log every [`WINDOW`] for as long as it is in use.
    pub(super) fn start() -> Self {
        let limit = Self::default();
        let callsites = Arc::downgrade(&limit.0);
        // Without the thread the limit still holds; only its counts are missing from the log.
        let _ =
            thread::Builder::new().name("log-limit".to_owned()).spawn(move || report(&callsites));
        limit
    }

    /// Counts an event. Returns true if it is to be logged.
    fn admit(&self, event: &Event<'_>, now: Instant) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO || metadata.target() == audit::TARGET {
            return true;
        }
        let mut callsites = lock(&self.0);
        let mut key = key_of(event);
        if callsites.len() >= CALLSITES && !callsites.contains_key(&key) {
            key = Key::Others;
        }
        let count = callsites.entry(key).or_insert_with_key(|key| Count {
            level: *metadata.level(),
            module: match key {
                Key::Module(_, module) => module.clone(),
                Key::Callsite(_) | Key::Others => metadata.target().to_owned(),
            },
            line: metadata.line(),
            began: now,
            logged: 0,
            suppressed: 0,
        });
        // A window with suppressed events ends when they are reported.
        if count.suppressed == 0 && now.saturating_duration_since(count.began) >= WINDOW {
            (count.began, count.logged) = (now, 0);
        }
        if count.logged < LINES {
            count.logged += 1;
            true
        } else {
            count.suppressed += 1;
            false
        }
    }
}

/// Ends the windows that are over, and returns what was suppressed in them.
fn take_suppressed(callsites: &mut Callsites, now: Instant) -> Vec<Suppressed> {
    let over = callsites.values_mut().filter(|count| {
        count.suppressed > 0 && now.saturating_duration_since(count.began) >= WINDOW
    });
    over.map(|count| {
        let Count { level, module, line, suppressed: events, .. } = &*count;
        let suppressed =
            Suppressed { level: *level, module: module.clone(), line: *line, events: *events };
        (count.began, count.logged, count.suppressed) = (now, 0, 0);
        suppressed
    })
    .collect()
}

fn report(callsites: &Weak<Mutex<Callsites>>) {
    loop {
        thread::park_timeout(WINDOW);
        let Some(callsites) = callsites.upgrade() else { return };
        // Logged without the lock, which admitting these lines takes again.
        let suppressed = take_suppressed(&mut lock(&callsites), Instant::now());
        for Suppressed { level, module, line, events } in suppressed {
            tracing::warn!(%level, module, line, events, "similar log lines were suppressed");
        }
    }
}

fn lock(callsites: &Mutex<Callsites>) -> MutexGuard<'_, Callsites> {
    callsites.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key_of(event: &Event<'_>) -> Key {
    let metadata = event.metadata();
    if metadata.target() != "log" {
        return Key::Callsite(metadata.callsite());
    }
    let mut module = Module(String::new());
    event.record(&mut module);
    Key::Module(*metadata.level(), module.0)
}

/// The module that an event of the crate `log` comes from.
struct Module(String);

impl Visit for Module {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "log.target" {
            value.clone_into(&mut self.0);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

/// A layer that is passed on no event beyond the limit. A filter of the layer would not do: in
/// tracing-subscriber 0.3, one that refuses a single event may refuse the thread's next one, too.
pub(super) struct Limited<L> {
    pub(super) layer: L,
    pub(super) limit: RateLimit,
}

impl<S: Subscriber, L: Layer<S>> Layer<S> for Limited<L> {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if self.limit.admit(event, Instant::now()) {
            self.layer.on_event(event, context);
        }
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        self.layer.on_new_span(attributes, id, context);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        self.layer.on_record(id, values, context);
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        self.layer.on_enter(id, context);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        self.layer.on_exit(id, context);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        self.layer.on_close(id, context);
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::{super::tests::Lines, *};

    /// Returns the text that `log` writes, and the limit that it was written under.
    fn logged(log: impl FnOnce()) -> (String, RateLimit) {
        let (lines, limit) = (Lines::default(), RateLimit::default());
        let writer = lines.clone();
        let layer = tracing_subscriber::fmt::layer().with_ansi(false);
        let layer = layer.with_writer(move || writer.clone());
        let layer = Limited { layer, limit: limit.clone() };
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, log);
        (lines.text(), limit)
    }

    #[test]
    fn an_event_that_repeats_is_logged_a_few_times_and_then_counted() {
        let (text, limit) = logged(|| {
            for n in 0..500 {
                tracing::warn!(n, "a login cannot be checked");
                tracing::debug!("asked for by the operator");
            }
            tracing::warn!("something else");
        });
        let count = |what| text.lines().filter(|line| line.contains(what)).count() as u64;
        assert_eq!(count("a login"), LINES, "{text}");
        assert_eq!(count("asked for"), 500);
        assert_eq!(count("something else"), 1, "another callsite has lines of its own");

        let mut callsites = lock(&limit.0);
        assert!(take_suppressed(&mut callsites, Instant::now()).is_empty(), "the window is open");
        let later = Instant::now() + WINDOW;
        let suppressed = take_suppressed(&mut callsites, later);
        assert_eq!(suppressed.len(), 1, "{suppressed:?}");
        assert_eq!(suppressed[0].events, 500 - LINES);
        assert!(suppressed[0].module.contains("rate_limit"), "{suppressed:?}");
        assert!(take_suppressed(&mut callsites, later + WINDOW).is_empty(), "reported once");
    }

    #[test]
    fn audit_lines_are_never_suppressed() {
        let (text, _) = logged(|| {
            for n in 0..500 {
                tracing::info!(target: audit::TARGET, n, "audit");
            }
        });
        assert_eq!(text.lines().count(), 500);
    }

    #[test]
    fn a_callsite_that_logs_now_and_then_is_never_suppressed() {
        let limit = RateLimit::default();
        let key = Key::Others;
        let mut now = Instant::now();
        let count = |began| Count {
            level: Level::WARN,
            module: String::new(),
            line: None,
            began,
            logged: LINES,
            suppressed: 0,
        };
        lock(&limit.0).insert(key.clone(), count(now));
        now += WINDOW;
        assert!(take_suppressed(&mut lock(&limit.0), now).is_empty());
        assert_eq!(lock(&limit.0)[&key].logged, LINES, "an event begins the next window");
    }
}
