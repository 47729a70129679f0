//! Registrations of one device each: `PUT` over many connections, as a share of the pushes that the
//! same `ingest` accepts.
//!
//! Most registrations of a running app change nothing, because devices repeat them. After an update
//! of the app every registration changes one attribute.

use std::time::Duration;

use anyhow::ensure;
use push_model::app::AppKey;
use push_tests::stack::APP;

use crate::{
    load::{
        Producer,
        pushes::ordinary_push,
        wrk::{NUMBER, Request},
    },
    measure::{
        cpu_time::CpuMeter,
        stats::{Rounds, median},
    },
    report::{Figure, Row, Target},
    setup::{Environment, environment::purge_jobs, population},
};

const CONNECTIONS: usize = 64;
/// Devices that register in turn.
const DEVICES: usize = 4096;
/// Load before the first round.
const WARM_UP: Duration = Duration::from_secs(1);
const TRANSPORT: &str = "mqtt";

/// The kind of registration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Registered devices, with the same attributes.
    Unchanged,
    /// Registered devices, with another app version.
    Changed,
    /// Devices that are not registered yet.
    New,
}

/// The measurements of one kind of registration.
struct Measured {
    kind: Kind,
    rounds: Rounds,
    /// Processor time of Redis and of `ingest` for each registration.
    costs: [Vec<f64>; 2],
}

pub(crate) async fn run(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let loaded = env.load(env.sizes.registered, TRANSPORT).await?;
    let (index, app) = (loaded.index().await?, AppKey::first(APP.parse()?));
    let (producer, amqp, load) = (loaded.producer(), env.amqp_url().await?, env.sizes.load);
    let push = ordinary_push(&population::client_id(0));
    let mut all = [Kind::Unchanged, Kind::Changed, Kind::New].map(|kind| Measured {
        kind,
        rounds: Rounds::default(),
        costs: Default::default(),
    });
    producer.wrk(CONNECTIONS, WARM_UP, &push).await?;
    let warm_up = Kind::Unchanged.requests(&producer, loaded.size, 0);
    producer.wrk_requests(CONNECTIONS, WARM_UP, &warm_up).await?;
    for round in 0..env.sizes.rounds {
        let accepted = producer.wrk(CONNECTIONS, load, &push).await?;
        purge_jobs(&amqp, &loaded.stack).await?;
        for Measured { kind, rounds, costs } in &mut all {
            let requests = kind.requests(&producer, loaded.size, round);
            let before = index.count_devices(&app).await?;
            let cpu = CpuMeter::start([loaded.redis.id(), loaded.stack.ingest().id()]);
            let rate = producer.wrk_requests(CONNECTIONS, load, &requests).await?;
            let registered = rate * load.as_secs_f64();
            for (costs, cost) in
                costs.iter_mut().zip(cpu.per_request(registered).into_iter().flatten())
            {
                costs.push(cost);
            }
            rounds.add(rate, accepted);
            let created = (index.count_devices(&app).await? - before) as f64;
            // wrk does not count the requests in flight at its end, which are registered.
            let is_right = match kind {
                Kind::New => created >= registered * 0.99,
                Kind::Unchanged | Kind::Changed => created == 0.0,
            };
            ensure!(is_right, "{registered} {}, and {created} are new", kind.name());
        }
    }
    Ok(all.into_iter().flat_map(|measured| measured.rows(env)).collect())
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged devices",
            Self::Changed => "changed devices",
            Self::New => "new devices",
        }
    }

    const fn target(self) -> Target {
        match self {
            Self::Unchanged => Target::RatioAtLeast(1.5),
            Self::Changed => Target::RatioAtLeast(0.85),
            Self::New => Target::RatioAtLeast(0.33),
        }
    }

    /// The requests that are sent in turn in this round.
    fn requests(self, producer: &Producer, size: usize, round: usize) -> Vec<Request> {
        let devices = DEVICES.min(size / 2);
        let step = size / devices;
        let put = |client_id: &str, number: usize, version: Option<&str>| Request {
            method: "PUT",
            path: producer.device_path(client_id),
            body: population::registration(number, version, TRANSPORT),
        };
        let numbers = (0..devices).map(|number| number * step);
        match self {
            Self::Unchanged => {
                numbers.map(|number| put(&population::client_id(number), number, None)).collect()
            }
            Self::Changed => {
                // Alternates between two app versions that no earlier round used. The devices are
                // the neighbours of those that stay unchanged.
                let versions = [2 * round, 2 * round + 1].map(|version| format!("6.{version}"));
                let put_all = |version: &String| {
                    numbers
                        .clone()
                        .map(|number| number + 1)
                        .map(|number| put(&population::client_id(number), number, Some(version)))
                        .collect::<Vec<_>>()
                };
                versions.iter().flat_map(put_all).collect()
            }
            Self::New => numbers
                .map(|number| put(&format!("new-in-round-{round:03}{NUMBER}"), number, None))
                .collect(),
        }
    }
}

impl Measured {
    fn rows(self, env: &Environment) -> Vec<Row> {
        let Self { kind, rounds, costs } = self;
        let mut rows = vec![Row {
            what: format!("registrations, {}", kind.name()),
            target: kind.target(),
            how: format!(
                "PUT by wrk, {CONNECTIONS} keep-alive connections, {} x {:?} each in turn; at \
                 first {} devices in the app. Ceiling, in turn: pushes that the same ingest accepts \
                 over as many connections",
                env.sizes.rounds, env.sizes.load, env.sizes.registered
            ),
            ..rounds.row("devices/s", "pushes/s")
        }];
        if costs.iter().all(|costs| !costs.is_empty()) {
            let [redis, ingest] = costs.map(median);
            rows.push(Row {
                what: format!("registrations, {}, processor time of Redis", kind.name()),
                figure: Figure::new(redis, "us/device"),
                ceiling: Some(Figure::new(ingest, "us/device")),
                ratio: Some(redis / ingest),
                target: Target::None,
                how: "user and system, in the same run. Beside it: that of ingest".to_owned(),
            });
        }
        rows
    }
}
