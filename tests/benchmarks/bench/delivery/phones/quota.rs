//! The quota of an FCM project, which three workers share: how much of it they use, and how often they
//! exceed it.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::sleep;

use super::fcm::wait_for;
use crate::{
    ceiling::raw_http2_client::WINDOW,
    load::pushes::broadcast,
    report::{Figure, Row, Target},
    setup::Phones,
};

const WORKERS: usize = 3;
/// Messages in any sixty seconds: half of what FCM allows, so that a slow machine reaches it.
const A_MINUTE: u64 = 300_000;
/// The time before the measurement, in which workers may send what they saved up.
const BEFORE: Duration = Duration::from_secs(5);
const MEASURED: Duration = Duration::from_secs(60);

pub(super) async fn run(phones: &Phones) -> anyhow::Result<Vec<Row>> {
    phones.provider.allow_streams(WINDOW as u32);
    phones.provider.allow_a_minute(A_MINUTE);
    let quota = A_MINUTE.to_string();
    let flags = ["--fcm-quota", &quota];
    let workers = join_all((0..WORKERS).map(|_| phones.worker(&flags))).await;
    let mut producer = phones.connect().await?;
    // Enough for the whole time, and a third more.
    let enough = A_MINUTE as usize * 3 / 2;
    let mut last = String::new();
    for _ in 0..enough.div_ceil(phones.size) {
        last = producer.push(&broadcast()).await?;
    }
    wait_for(&mut producer, &last, 1).await?;
    sleep(BEFORE).await;
    let begun = phones.provider.counts();
    sleep(MEASURED).await;
    let (taken, refused) = phones.provider.counts();
    // The rest is sent to by no one.
    drop(workers);
    let taken = (taken - begun.0) as f64;
    Ok(vec![
        Row {
            what: format!("FCM quota used by {WORKERS} workers"),
            ceiling: Some(Figure::new(A_MINUTE as f64, "/min")),
            ratio: Some(taken / A_MINUTE as f64),
            target: Target::RatioAtLeast(0.95),
            how: format!(
                "{MEASURED:?} of broadcasts. Ceiling: the quota, which FCM enforces over any minute"
            ),
            ..Row::alone(Figure::new(taken, "/min"))
        },
        Row {
            what: "requests over the quota".to_owned(),
            target: Target::AtMost(0.1),
            how: "429 in place of an answer, from the first request on".to_owned(),
            ..Row::alone(Figure::new(refused as f64 * 100.0 / (taken + refused as f64), "%"))
        },
    ])
}
