//! Broadcasts over Web Push, whose work is mostly encryption, beside the encryption alone.

use std::time::Duration;

use anyhow::ensure;

use crate::{
    ceiling::{raw_encryption, raw_http2_client::WINDOW},
    load::broadcasts,
    measure::{cpu_time::CpuMeter, stats::Rounds},
    report::{Row, Target},
    setup::{Environment, Phones},
};

/// The time for which messages are encrypted in one round.
const ENCRYPTION: Duration = Duration::from_secs(2);

pub(super) async fn run(env: &Environment, browsers: &Phones) -> anyhow::Result<Vec<Row>> {
    browsers.provider.allow_streams(WINDOW as u32);
    let worker = browsers.worker(&[]).await;
    let mut producer = browsers.connect().await?;
    broadcasts::send_one(&mut producer, browsers.size).await?;
    let (mut of_core, mut of_machine) = (Rounds::default(), Rounds::default());
    for _ in 0..env.sizes.rounds {
        let meter = CpuMeter::start([worker.id()]);
        let figure = broadcasts::send_one(&mut producer, browsers.size).await?;
        let [processor] = meter.per_request(browsers.size as f64).unwrap_or([f64::NAN]);
        let raw = raw_encryption::measure(ENCRYPTION).await?;
        of_core.add(1e6 / processor, 1e6 / raw.processor);
        of_machine.add(figure, raw.rate);
    }
    ensure!(worker.stop().await.success(), "the worker did not stop well");
    let how = |what: &str, more: &str| {
        format!(
            "{} browsers, one worker, TLS, {} rounds: {what}. Ceiling, in turn: a loop that only encrypts{more}",
            browsers.size, env.sizes.rounds
        )
    };
    Ok(vec![
        Row {
            what: "broadcast over Web Push, for each core that the worker uses".to_owned(),
            target: Target::RatioAtLeast(0.80),
            how: how(
                "devices for each second of the worker's processor time",
                ", on as many cores",
            ),
            ..of_core.row("devices/s", "messages/s")
        },
        Row {
            what: "the same, on all cores, with the server beside it".to_owned(),
            how: how("devices a second", ", on all cores"),
            ..of_machine.row("devices/s", "messages/s")
        },
    ])
}
