//! Bounds how often one place in the code is logged, so that no client can fill the log with
//! repeats.
//!
//! A line that says the same as one before within the same span is counted ([`Repeats`]). Lines that differ
//! are bounded too: each callsite gets [`LINES`] lines per [`WINDOW`]. Further events are counted, and one line at the end
//! of the window says how many there were. Audit events and changes of [`health`](crate::health) are never
//! suppressed, and neither are debug and trace events, which an operator has to ask for.
//!
//! A thread writes the counts: an attack that ends leaves no later event to report it with.

use std::{
    collections::HashMap,
    fmt::{self, Write as _},
    hash::{DefaultHasher, Hash as _, Hasher as _},
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
use tracing_subscriber::{Layer, layer::Context, registry::LookupSpan};

use super::repeats::{Counted, Repeats};
use crate::{audit, health::spoken};

/// Lines that one callsite may log per [`WINDOW`].
const LINES: u64 = 20;
/// The time for which lines are counted.
const WINDOW: Duration = Duration::from_secs(10);
/// The most of a line that is kept for the count of its repeats, in bytes.
const SAID: usize = 300;
/// Callsites that are told apart. A program has some hundreds; all further ones share a count.
const CALLSITES: usize = 4096;

/// Suppresses what a callsite logs too often.
#[derive(Debug, Default, Clone)]
pub(super) struct RateLimit(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    started: Instant,
    callsites: Callsites,
    repeats: Repeats,
}

impl Default for State {
    fn default() -> Self {
        Self { started: Instant::now(), callsites: HashMap::new(), repeats: Repeats::default() }
    }
}

type Callsites = HashMap<Key, Count>;

/// The target of the changes of health, each of which is news.
const HEALTH: &str = "push_boot::health";

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
    fn admit(&self, event: &Event<'_>, span: Option<Id>, now: Instant) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO || [audit::TARGET, HEALTH].contains(&metadata.target()) {
            return true;
        }
        let mut said = Said::default();
        event.record(&mut said);
        let mut hasher = DefaultHasher::new();
        (metadata.callsite(), &said.0, span).hash(&mut hasher);
        let mut state = lock(&self.0);
        let since_start = now.saturating_duration_since(state.started);
        let (hash, level) = (hasher.finish(), *metadata.level());
        if !state.repeats.is_new(hash, level, || said.shortened(), since_start) {
            return false;
        }
        let callsites = &mut state.callsites;
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

fn report(state: &Weak<Mutex<State>>) {
    loop {
        thread::park_timeout(WINDOW);
        let Some(state) = state.upgrade() else { return };
        // Logged without the lock, which admitting these lines takes again.
        let (suppressed, counted) = {
            let (mut state, now) = (lock(&state), Instant::now());
            let since_start = now.saturating_duration_since(state.started);
            (take_suppressed(&mut state.callsites, now), state.repeats.take(since_start))
        };
        for Suppressed { level, module, line, events } in suppressed {
            tracing::info!(%level, module, line, events, "similar log lines were suppressed");
        }
        for Counted { level, text, times, within, ended } in counted {
            let (within, end) = (spoken(within), if ended { ", and no more" } else { "" });
            tracing::info!(%level, "repeated {times} times within {within}{end}: {text}");
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an event says: its message and its fields.
#[derive(Default)]
struct Said(String);

impl Said {
    /// Returns it cut to a length that a count of its repeats may take.
    fn shortened(&self) -> String {
        super::shortened(&self.0, SAID).into_owned()
    }
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let space = if self.0.is_empty() { "" } else { " " };
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{space}{value:?}"),
            name => write!(self.0, "{space}{name}={value:?}"),
        };
    }
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

impl<S, L> Layer<S> for Limited<L>
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    L: Layer<S>,
{
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let span = context.event_span(event).map(|span| span.id());
        if self.limit.admit(event, span, Instant::now()) {
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

        let callsites = &mut lock(&limit.0).callsites;
        assert!(take_suppressed(callsites, Instant::now()).is_empty(), "the window is open");
        let later = Instant::now() + WINDOW;
        let suppressed = take_suppressed(callsites, later);
        assert_eq!(suppressed.len(), 1, "{suppressed:?}");
        assert_eq!(suppressed[0].events, 500 - LINES);
        assert!(suppressed[0].module.contains("rate_limit"), "{suppressed:?}");
        assert!(take_suppressed(callsites, later + WINDOW).is_empty(), "reported once");
    }

    #[test]
    fn a_line_that_says_the_same_again_is_logged_once_and_counted() {
        let (text, limit) = logged(|| {
            for _ in 0..500 {
                tracing::warn!(error = "too many open files", "cannot accept connections");
            }
            for span in 0..3 {
                let message = tracing::info_span!("delivery", span);
                message.in_scope(|| tracing::warn!("dead letter"));
            }
        });
        let count = |what| text.lines().filter(|line| line.contains(what)).count();
        assert_eq!(count("cannot accept"), 1, "{text}");
        assert_eq!(count("dead letter"), 3, "each is of another message: {text}");
        let later = Duration::from_mins(2);
        let [counted] = lock(&limit.0).repeats.take(later).try_into().unwrap();
        assert_eq!(counted.times, 499);
        assert!(counted.text.starts_with("cannot accept connections error="), "{}", counted.text);
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
        lock(&limit.0).callsites.insert(key.clone(), count(now));
        now += WINDOW;
        assert!(take_suppressed(&mut lock(&limit.0).callsites, now).is_empty());
        assert_eq!(lock(&limit.0).callsites[&key].logged, LINES, "an event begins the next window");
    }
}
