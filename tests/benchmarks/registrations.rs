//! Devices that register one by one, as devices do: `PUT` over many connections, as a share of the
//! pushes that the same `ingest` accepts.
//!
//! Most registrations of an app that runs change nothing, because devices repeat them; after an
//! update of the app all of them change one attribute.

use std::time::Duration;

use anyhow::ensure;
use push_model::app::AppKey;
use push_tests::stack::APP;

use crate::{
    crowd,
    ingest::forget_jobs,
    load::{Producer, Rounds, median, ordinary_push},
    processor::Spent,
    report::{Figure, Row, Target},
    world::World,
    wrk::{NUMBER, Request},
};

const CONNECTIONS: usize = 64;
/// Devices that register in turn.
const DEVICES: usize = 4096;
/// Load before the first round.
const WARM_UP: Duration = Duration::from_secs(1);
const TRANSPORT: &str = "mqtt";

/// What is registered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Devices that are registered just so.
    Unchanged,
    /// Devices that are registered with another version of the app.
    Changed,
    /// Devices that are not registered.
    New,
}

/// What was measured of one kind.
struct Measured {
    kind: Kind,
    rounds: Rounds,
    /// Processor time of Redis and of `ingest` for each registration.
    costs: [Vec<f64>; 2],
}

pub(crate) async fn run(world: &World) -> anyhow::Result<Vec<Row>> {
    let crowd = world.load(world.sizes.registered, TRANSPORT).await?;
    let (index, app) = (crowd.index().await?, AppKey::first(APP.parse()?));
    let (producer, amqp, load) = (crowd.producer(), world.amqp().await?, world.sizes.load);
    let push = ordinary_push(&crowd::client_id(0));
    let mut all = [Kind::Unchanged, Kind::Changed, Kind::New].map(|kind| Measured {
        kind,
        rounds: Rounds::default(),
        costs: Default::default(),
    });
    producer.wrk(CONNECTIONS, WARM_UP, &push).await?;
    let warm_up = Kind::Unchanged.requests(&producer, crowd.size, 0);
    producer.wrk_requests(CONNECTIONS, WARM_UP, &warm_up).await?;
    for round in 0..world.sizes.rounds {
        let accepted = producer.wrk(CONNECTIONS, load, &push).await?;
        forget_jobs(&amqp, &crowd.stack).await?;
        for Measured { kind, rounds, costs } in &mut all {
            let requests = kind.requests(&producer, crowd.size, round);
            let before = index.count_devices(&app).await?;
            let spent = Spent::by([crowd.redis.id(), crowd.stack.ingest().id()]);
            let rate = producer.wrk_requests(CONNECTIONS, load, &requests).await?;
            let registered = rate * load.as_secs_f64();
            for (costs, cost) in costs.iter_mut().zip(spent.per(registered).into_iter().flatten()) {
                costs.push(cost);
            }
            rounds.add(rate, accepted);
            let created = (index.count_devices(&app).await? - before) as f64;
            // What was on its way at the end is registered and not counted by wrk.
            let is_right = match kind {
                Kind::New => created >= registered * 0.99,
                Kind::Unchanged | Kind::Changed => created == 0.0,
            };
            ensure!(is_right, "{registered} {}, and {created} are new", kind.name());
        }
    }
    Ok(all.into_iter().flat_map(|measured| measured.rows(world)).collect())
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
            Self::Unchanged => Target::RatioAtLeast(1.0),
            Self::Changed | Self::New => Target::RatioAtLeast(0.8),
        }
    }

    /// What is sent in turn in this round.
    fn requests(self, producer: &Producer, size: usize, round: usize) -> Vec<Request> {
        let devices = DEVICES.min(size / 2);
        let step = size / devices;
        let put = |client_id: &str, number: usize, version: Option<&str>| Request {
            method: "PUT",
            path: producer.device_path(client_id),
            body: crowd::registration(number, version, TRANSPORT),
        };
        let numbers = (0..devices).map(|number| number * step);
        match self {
            Self::Unchanged => {
                numbers.map(|number| put(&crowd::client_id(number), number, None)).collect()
            }
            Self::Changed => {
                // Back and forth between two versions that no earlier round had; of devices beside
                // those that stay unchanged.
                let versions = [2 * round, 2 * round + 1].map(|version| format!("6.{version}"));
                let put_all = |version: &String| {
                    numbers
                        .clone()
                        .map(|number| number + 1)
                        .map(|number| put(&crowd::client_id(number), number, Some(version)))
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
    fn rows(self, world: &World) -> Vec<Row> {
        let Self { kind, rounds, costs } = self;
        let (figure, ceiling, ratio) = rounds.medians();
        let mut rows = vec![Row {
            what: format!("registrations, {}", kind.name()),
            figure: Figure::new(figure, "devices/s"),
            ceiling: Some(Figure::new(ceiling, "pushes/s")),
            ratio: Some(ratio),
            target: kind.target(),
            how: format!(
                "PUT by wrk, {CONNECTIONS} keep-alive connections, {} x {:?} each in turn; at \
                 first {} devices in the app. Ceiling, in turn: pushes that the same ingest accepts \
                 over as many connections",
                world.sizes.rounds, world.sizes.load, world.sizes.registered
            ),
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
