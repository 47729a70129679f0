//! Measures the pages of an app's list of messages over many messages. It takes minutes, so it is ignored:
//! `test-servers -- cargo nextest run --test suites --run-ignored only list_latency` runs it, and with
//! `--cargo-profile dist` as fast as the programs are.

use std::time::{Duration, Instant};

use push_ledger::{Ledger, MessageQuery, list_messages};
use push_model::{
    app::AppKey,
    device::TransportKind,
    id_key::IdKey,
    ids::{AudienceKind, MessageId},
    ledger::{
        Advance, Counts, ListPlace, MessageState, MessageStep, NewEntry, Outcomes, PartitionState,
        Plan,
    },
    time::UnixMillis,
};
use rand::RngExt;

use crate::index::engines;

/// Messages a millisecond.
const RATE: u64 = 20;

/// Pages of each app.
const PAGES: usize = 1000;

/// Messages that are written at a time, each [`WRITES_APART`], while pages are read.
const WRITES: u64 = 10;

const WRITES_APART: Duration = Duration::from_millis(20);

/// The apps whose pages are read, with the part of the messages in which their pages begin: a list of Redis
/// has not all of an app with many messages.
const APPS: [(&str, u64); 3] = [("loud", 6), ("app-1", 6), ("quiet", 1)];

fn app(name: &str) -> AppKey {
    AppKey::first(name.parse().unwrap())
}

/// Half of all messages are of the loud app, one in a thousand of the quiet one, and the others of a hundred.
/// A few are broadcasts, or have derived ids.
fn new_entry(number: u64, at: UnixMillis) -> NewEntry {
    let app = match number {
        _ if number.is_multiple_of(1000) => app("quiet"),
        _ if number.is_multiple_of(2) => app("loud"),
        _ => app(&format!("app-{}", number % 100)),
    };
    let is_broadcast = number % 1000 == 501;
    let kind = if is_broadcast { AudienceKind::Broadcast } else { AudienceKind::Named };
    let message_id = match number % 1000 {
        502 => MessageId::derive(&app.id, &IdKey::from([1; 16]), &number.to_be_bytes()),
        _ => MessageId::issue_at(&app.id, kind, at),
    };
    let plan =
        if is_broadcast { Plan::of(TransportKind::Mqtt, vec![Vec::new()]) } else { Plan::named() };
    NewEntry {
        message_id,
        app,
        accepted_at: at,
        expires_at: at.plus(Duration::from_hours(1)),
        dedup_nonce: number,
        keep_until: at.plus(Duration::from_hours(48)),
        plan: Some(plan),
        claim: None,
        replaces: None,
        broadcast: None,
    }
}

/// Begins messages, and finishes most of them: one in 16 stays as it is accepted, and no message is in any
/// other state.
async fn write(ledger: &dyn Ledger, entries: &[NewEntry]) {
    for (begun, new) in ledger.begin_all(entries).await.into_iter().zip(entries) {
        if !begun.unwrap() {
            ledger.begin(new).await.unwrap().unwrap();
        }
    }
    let outcomes = Outcomes { sent: 1, ..Outcomes::default() };
    let finished = entries.iter().filter(|new| !(new.dedup_nonce / 2).is_multiple_of(16));
    let steps = finished.map(|new| MessageStep {
        app: new.app.clone(),
        message: new.message_id,
        step: Advance {
            dedup_nonce: new.dedup_nonce,
            partition: 0,
            from: PartitionState::default(),
            to: PartitionState::ENDED,
            leftovers: None,
            counts: Counts { targeted: 1, outcomes: outcomes.clone(), ..Counts::default() },
            keep_until: None,
        },
    });
    let steps: Vec<_> = steps.collect();
    assert!(ledger.advance_all(&steps).await.into_iter().all(|answer| answer.is_ok()));
}

fn print(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let [median, p99] = [50, 99].map(|percent| times[times.len() * percent / 100]);
    println!("{name}: median {median:?}, p99 {p99:?}, {:?} at most", times[times.len() - 1]);
}

/// Prints percentiles of the time of a page of one app: from the beginning of the list and from places in it,
/// of all messages and of those in each state.
async fn measure_pages(
    ledger: &dyn Ledger,
    name: &str,
    (first, last): (UnixMillis, UnixMillis),
) -> Vec<Duration> {
    let (app, now) = (app(name), UnixMillis::now());
    let (mut all, mut of_state) = (Vec::new(), Vec::new());
    for number in 0..PAGES {
        let at = UnixMillis(rand::rng().random_range(first.0..last.0));
        let before = (number % 4 > 0).then(|| ListPlace::start_of(at));
        let state = MessageState::ALL.get(number % 10).copied();
        let query = MessageQuery { limit: 50, before, state };
        let begun = Instant::now();
        list_messages(ledger, &app, &query, now).await.unwrap();
        if state.is_some() { &mut of_state } else { &mut all }.push(begun.elapsed());
    }
    let both = [all.clone(), of_state.clone()].concat();
    print(&format!("{name}, a page of 50"), all);
    print(&format!("{name}, a page of 50 in one state"), of_state);
    both
}

/// Fills a ledger with so many messages, and measures pages.
async fn measure(ledger: &dyn Ledger, messages: u64) {
    let now = UnixMillis::now();
    let first = UnixMillis(now.0 - messages / RATE);
    let begun = Instant::now();
    for chunk in (0..messages).collect::<Vec<_>>().chunks(2000) {
        let at = |number: u64| UnixMillis(first.0 + number / RATE);
        let entries: Vec<_> = chunk.iter().map(|number| new_entry(*number, at(*number))).collect();
        write(ledger, &entries).await;
    }
    println!("{messages} messages written in {:?}", begun.elapsed());
    measure_beside_writes(ledger, messages, now).await;
}

/// Measures pages of a ledger that has so many messages, the last of this time, while more are written.
async fn measure_beside_writes(ledger: &dyn Ledger, messages: u64, last: UnixMillis) {
    let writes = async {
        let mut times = Vec::new();
        let mut ticks = tokio::time::interval(WRITES_APART);
        for number in messages / WRITES.. {
            ticks.tick().await;
            let numbers = number * WRITES..(number + 1) * WRITES;
            let entries: Vec<_> =
                numbers.map(|number| new_entry(number, UnixMillis::now())).collect();
            let begun = Instant::now();
            write(ledger, &entries).await;
            times.push(begun.elapsed());
            if times.len() % 250 == 0 {
                print("ten writes meanwhile", std::mem::take(&mut times));
            }
        }
    };
    let pages = async {
        let mut all = Vec::new();
        for (name, part) in APPS {
            let first = UnixMillis(last.0 - messages / RATE / part);
            all.extend(measure_pages(ledger, name, (first, last)).await);
        }
        print("all pages", all);
    };
    tokio::select! {
        () = writes => {}
        () = pages => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn pages_of_many_messages_in_redis() {
    measure(engines::redis().await.part(), 10_000_000).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn pages_of_many_messages_in_sqlite() {
    measure(engines::sqlite().await.part(), 1_000_000).await;
}
