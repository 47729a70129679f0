//! Paces. [`push_model::pace`] defines, and tests, what is granted when; the engines answer like
//! the definition, in one atomic step while other workers ask too.

use std::num::NonZeroU32;

use push_index::{Index, Pacing as _, redis::RedisIndex};
use push_model::{
    app::{App, AppKey},
    pace::{Acquire, Grant, TheoreticalArrival, TrafficClass, max_batch},
    secret::Secret,
    time::UnixMillis,
};
use push_tests::{namespace, redis_url, servers::redis_connection};
use rand::{RngExt, SeedableRng, rngs::SmallRng};

use crate::index::support::NOW;

/// Random sequences for each engine, each in an app of its own.
const SEQUENCES: u64 = 12;
/// Requests of a sequence.
const REQUESTS: usize = 60;

async fn app(index: &dyn Index, id: &str) -> AppKey {
    let app = App::new(id.parse().unwrap(), &Secret::generate(), NOW);
    assert!(index.create_app(&app).await.unwrap());
    AppKey::from(&app)
}

fn broadcast(devices: u32, pace: u32) -> Acquire {
    let pace = NonZeroU32::new(pace).unwrap();
    Acquire { devices, pace, class: TrafficClass::Broadcast, now: NOW }
}

pub(crate) async fn every_engine_grants_what_the_definition_grants(index: &dyn Index) {
    for seed in 0..SEQUENCES {
        let random = &mut SmallRng::seed_from_u64(seed);
        let app = app(index, &format!("a{seed}")).await;
        let pace = [1, 2, 3, 7, 1000, 1_000_000, u32::MAX][random.random_range(0..7)];
        let (mut paid, mut at, mut requests) = (TheoreticalArrival::default(), NOW, Vec::new());
        for _ in 0..REQUESTS {
            at.0 += [0, 1, 30, 400, 2500][random.random_range(0..5)];
            // Some clocks are behind, and once in a while one is wrong.
            let now = match random.random_range(0..30) {
                0 => at.plus_seconds(3600),
                1..5 => UnixMillis(at.0 - random.random_range(0..5000)),
                _ => at,
            };
            let devices = random.random_range(1..=max_batch(NonZeroU32::new(pace).unwrap()));
            let class =
                if random.random_bool(0.3) { TrafficClass::Named } else { TrafficClass::Broadcast };
            let request = Acquire { now, class, ..broadcast(devices, pace) };
            requests.push(request);
            let expected;
            (paid, expected) = paid.acquire(&request);
            let answer = index.acquire_pace(&app, &request).await.unwrap();
            assert_eq!(answer, expected, "seed {seed}: {requests:#?}");
        }
    }
}

pub(crate) async fn workers_that_ask_at_the_same_time_are_granted_no_more_than_one_after_another(
    index: &dyn Index,
) {
    let app = app(index, "a").await;
    let request = broadcast(50, 100);
    let answers = (0..40).map(|_| index.acquire_pace(&app, &request));
    let answers = futures::future::join_all(answers).await;
    // Two seconds of unused pace are kept, which are four batches, and one more may leave a debt.
    let granted = answers.iter().filter(|answer| answer.as_ref().unwrap().granted).count();
    assert_eq!(granted, 5, "{answers:?}");
}

pub(crate) async fn the_pace_of_one_app_is_not_used_up_by_another(index: &dyn Index) {
    let (one, other) = (app(index, "a").await, app(index, "b").await);
    let request = broadcast(50, 100);
    let mut granted = 0;
    while index.acquire_pace(&one, &request).await.unwrap().granted {
        granted += 1;
        assert!(granted < 100, "the pace is never used up");
    }
    let answer = index.acquire_pace(&other, &request).await.unwrap();
    assert_eq!(answer, Grant { granted: true, next_at: UnixMillis(NOW.0 - 1500) });
}

#[tokio::test]
async fn what_an_app_was_granted_expires_in_redis_by_itself() {
    let namespace = namespace();
    let index = RedisIndex::connect(&redis_url(), &namespace, Default::default()).await.unwrap();
    let app = app(&index, "a").await;
    assert!(index.acquire_pace(&app, &broadcast(50, 100)).await.unwrap().granted);
    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = redis_connection(&client).await.unwrap();
    let key = format!("{namespace}:{{a}}:p");
    let left: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut connection).await.unwrap();
    assert!((1..=14_000).contains(&left), "{key} expires in {left} ms");
}
