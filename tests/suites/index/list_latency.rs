//! Measures the pages of an app's list of messages over many messages. It takes minutes, so it is ignored:
//! `test-servers -- cargo nextest run --test suites --run-ignored only list_latency` runs it.

use std::time::{Duration, Instant};

use push_ledger::{Ledger, MessageQuery, list_messages};
use push_model::{
    app::AppKey,
    ids::{AudienceKind, MessageId},
    ledger::{ListPlace, NewEntry, Plan},
    time::UnixMillis,
};
use rand::RngExt;

use crate::index::engines;

/// Messages, of which one in a thousand is of the quiet app.
const MESSAGES: u64 = 1_000_000;

/// Messages a millisecond.
const RATE: u64 = 20;

const PAGES: usize = 500;

fn app(name: &str) -> AppKey {
    AppKey::first(name.parse().unwrap())
}

fn new_entry(number: u64, first: UnixMillis) -> NewEntry {
    let app = match number {
        _ if number.is_multiple_of(1000) => app("quiet"),
        _ if number.is_multiple_of(2) => app("loud"),
        _ => app(&format!("app-{}", number % 97)),
    };
    let at = UnixMillis(first.0 + number / RATE);
    NewEntry {
        message_id: MessageId::issue_at(&app.id, AudienceKind::Named, at),
        app,
        accepted_at: at,
        expires_at: at.plus(Duration::from_hours(1)),
        dedup_nonce: number,
        keep_until: at.plus(Duration::from_hours(48)),
        plan: Some(Plan::named()),
        claim: None,
        replaces: None,
        broadcast: None,
    }
}

/// Prints percentiles of the time of a page: from the beginning of the list, and from places in it.
async fn measure(ledger: &dyn Ledger) {
    let now = UnixMillis::now();
    let first = UnixMillis(now.0 - MESSAGES / RATE);
    let begun = Instant::now();
    for chunk in (0..MESSAGES).collect::<Vec<_>>().chunks(1000) {
        let entries: Vec<_> = chunk.iter().map(|number| new_entry(*number, first)).collect();
        assert!(ledger.begin_all(&entries).await.into_iter().all(|begun| begun.unwrap()));
    }
    println!("{MESSAGES} messages begun in {:?}", begun.elapsed());
    for name in ["loud", "quiet", "app-1"] {
        let app = app(name);
        let mut times = Vec::new();
        for number in 0..PAGES {
            let at = UnixMillis(rand::rng().random_range(first.0..now.0));
            let before = (number % 2 == 1).then(|| ListPlace::start_of(at));
            let query = MessageQuery { limit: 50, before, state: None };
            let begun = Instant::now();
            list_messages(ledger, &app, &query, now).await.unwrap();
            times.push(begun.elapsed());
        }
        times.sort_unstable();
        let (median, p99) = (times[PAGES / 2], times[PAGES * 99 / 100]);
        println!("{name}: a page of 50 takes {median:?}, p99 {p99:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn pages_of_many_messages_in_redis() {
    measure(engines::redis().await.part()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn pages_of_many_messages_in_sqlite() {
    measure(engines::sqlite().await.part()).await;
}
