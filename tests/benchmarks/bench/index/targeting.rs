//! Targeting: three criteria over all devices of an app, counted by the index engine.

use std::{sync::Arc, time::Duration};

use anyhow::{bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use push_index::{CarrierExtent, Index, Selection};
use push_model::{
    app::AppKey, attributes::Attribute, device::Carrier, slots::SlotRange, targeting::Targeting,
    time::UnixMillis,
};
use push_tests::{servers::redis_connection, stack::APP};
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use super::filters;
use crate::{
    measure::stats::Rounds,
    report::{Figure, Row, Target},
    setup::{
        Environment, LoadedApp,
        population::{self, CRITERIA, MODEL_CRITERIA},
    },
};

/// Slot ranges that are counted concurrently, and pipelines of the raw reader.
const CONCURRENT_RANGES: usize = 8;
/// The target is for apps of this size or more: in a smaller one most of the time goes into a
/// request to each shard.
const LARGE: usize = 1_000_000;
/// Slots of one segment of a column.
const SEGMENT: u32 = 2046 * 16;

pub(crate) async fn run(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let of = population::count_matching(env.sizes.small);
    let small = criteria_app(env.small_app().await?, &CRITERIA, 0, of[0]).await?;
    let of = population::count_matching(env.sizes.big);
    let big = criteria_app(env.big_app().await?, &CRITERIA, 0, of[0]).await?;
    let models = criteria_app(env.big_app().await?, &MODEL_CRITERIA, 1, of[1]).await?;
    // The smaller app is counted several times, so that both take about as long and a disturbance
    // hits both alike.
    let repeated = (env.sizes.big / env.sizes.small).max(1);
    let (mut of_small, mut of_big, mut of_models, mut growth) =
        (Rounds::default(), Rounds::default(), Rounds::default(), Rounds::default());
    // The first round reads the dictionaries and warms the connections.
    for round in 0..=env.sizes.rounds * 3 {
        let smaller = (small.count(repeated).await?, small.read(repeated).await?);
        let larger = (big.count(1).await?, big.read(1).await?);
        let wider = (models.count(1).await?, models.read(1).await?);
        if round > 0 {
            of_small.add(smaller.0, smaller.1);
            of_big.add(larger.0, larger.1);
            of_models.add(wider.0, wider.1);
            growth.add(larger.0, smaller.0);
        }
    }
    let mut rows = Vec::new();
    for (size, rounds) in [(env.sizes.small, &of_small), (env.sizes.big, &of_big)] {
        rows.push(Row {
            what: format!("targeting, {} devices", Figure::new(size as f64, "").to_string().trim()),
            target: if size >= LARGE { Target::AtMost(6.0) } else { Target::None },
            how: format!(
                "2 countries, 3 languages, 2 brands counted by the index engine, {CONCURRENT_RANGES} ranges \
                 at once, per million devices. Ceiling, in turn: GETRANGE of the same three \
                 columns, {CONCURRENT_RANGES} at once, thrown away",
            ),
            ..rounds.row("ms/M", "ms/M")
        });
    }
    rows.push(Row {
        what: "targeting, one of 300 values".to_owned(),
        how: format!(
            "{} devices, 2 models in place of the brands: their column has high bytes too",
            env.sizes.big
        ),
        ..of_models.row("ms/M", "ms/M")
    });
    rows.extend(filters::run(env).await?);
    let (big, small, ratio) = growth.medians();
    let from_large = env.sizes.small >= LARGE;
    rows.push(Row {
        what: "targeting, cost of a device when there are more".to_owned(),
        figure: Figure::new(big, "ms/M"),
        ceiling: Some(Figure::new(small, "ms/M")),
        ratio: Some(ratio),
        target: if from_large { Target::RatioAtMost(1.15) } else { Target::None },
        how: format!(
            "{} devices over {} devices, in turn, the smaller app {repeated} times in a row",
            env.sizes.big, env.sizes.small
        ),
    });
    Ok(rows)
}

/// An app with its criteria, `high` of whose columns have high bytes.
async fn criteria_app<'a>(
    loaded: &'a LoadedApp,
    criteria: &[(Attribute, &[&str])],
    high: usize,
    expected: u64,
) -> anyhow::Result<TargetedApp<'a>> {
    let mut targeting = Targeting::all_devices();
    for (attribute, values) in criteria {
        let values = values.iter().map(|value| attribute.normalise_wanted(value));
        targeting.set(*attribute, values.collect::<Result<_, _>>()?);
    }
    let columns = criteria.iter().map(|(attribute, _)| attribute.index().to_string()).collect();
    let columns = Columns { names: columns, whole: criteria.len(), partial: high };
    TargetedApp::open(loaded, columns, targeting, expected).await
}

/// The columns that a targeting is evaluated on.
pub(super) struct Columns {
    /// As keys name them.
    pub(super) names: Vec<String>,
    /// Strings with a byte for each slot.
    pub(super) whole: usize,
    /// Strings that may end before the last slot: high bytes, and columns of an app's own attributes.
    pub(super) partial: usize,
}

/// An app with a targeting that is evaluated on its devices.
pub(super) struct TargetedApp<'a> {
    loaded: &'a LoadedApp,
    index: Arc<dyn Index>,
    raw: MultiplexedConnection,
    app: AppKey,
    carrier: Carrier,
    extent: Vec<SlotRange>,
    columns: Columns,
    targeting: Targeting,
    /// Number of devices that match.
    expected: u64,
}

impl<'a> TargetedApp<'a> {
    pub(super) async fn open(
        loaded: &'a LoadedApp,
        columns: Columns,
        targeting: Targeting,
        expected: u64,
    ) -> anyhow::Result<Self> {
        let index = loaded.index().await?;
        let app = AppKey::first(APP.parse()?);
        let of_carriers = index.carriers(&app).await?;
        let [CarrierExtent { carrier, ranges: extent }] = &*of_carriers else {
            bail!("the devices are not all of one carrier");
        };
        let (carrier, extent) = (*carrier, extent.clone());
        let client = redis::Client::open(loaded.redis.url())?;
        let raw = redis_connection(&client).await?;
        Ok(Self { loaded, index, raw, app, carrier, extent, columns, targeting, expected })
    }

    /// Milliseconds per million devices.
    fn per_million(&self, took: Duration, repeated: usize) -> f64 {
        took.as_secs_f64() * 1e3 / (self.loaded.size * repeated) as f64 * 1e6
    }

    /// Counts the matching devices.
    pub(super) async fn count(&self, repeated: usize) -> anyhow::Result<f64> {
        let now = UnixMillis::now();
        let started = Instant::now();
        for _ in 0..repeated {
            let count = |range: &SlotRange| {
                let (app, targeting) = (&self.app, &self.targeting);
                self.index.count_matching(
                    app,
                    *range,
                    Selection { carrier: self.carrier, targeting, registered_by: now },
                )
            };
            let found: u64 = stream::iter(self.extent.iter().map(count))
                .buffer_unordered(CONCURRENT_RANGES)
                .try_fold(0, |sum, count| async move { Ok(sum + count) })
                .await?;
            ensure!(found == self.expected, "{found} devices match, not {}", self.expected);
        }
        Ok(self.per_million(started.elapsed(), repeated))
    }

    /// Reads the columns that counting needs, and nothing else.
    pub(super) async fn read(&self, repeated: usize) -> anyhow::Result<f64> {
        let slots: u64 = self.extent.iter().map(|range| u64::from(range.to - range.from)).sum();
        // Some strings end at the last device that has a value there, so their length varies.
        let low = slots as usize * self.columns.whole;
        let most = low + slots as usize * self.columns.partial;
        let started = Instant::now();
        for _ in 0..repeated {
            let read = |range: &SlotRange| {
                read_columns(self.raw.clone(), self.loaded, &self.columns.names, *range)
            };
            let bytes: usize = stream::iter(self.extent.iter().map(read))
                .buffer_unordered(CONCURRENT_RANGES)
                .try_fold(0, |sum, bytes| async move { Ok(sum + bytes) })
                .await?;
            let whole =
                (low..=most).contains(&bytes) && (bytes > low) == (self.columns.partial > 0);
            ensure!(whole, "{bytes} bytes of columns in place of {low} and some up to {most}");
        }
        Ok(self.per_million(started.elapsed(), repeated))
    }
}

/// Reads the columns and discards them.
async fn read_columns(
    mut raw: MultiplexedConnection,
    loaded: &LoadedApp,
    columns: &[String],
    range: SlotRange,
) -> anyhow::Result<usize> {
    let mut bytes = 0;
    let mut from = range.from;
    while from < range.to {
        let segment = from / SEGMENT;
        let to = range.to.min((segment + 1) * SEGMENT);
        let mut pipe = redis::pipe();
        let first = (from % SEGMENT) as isize;
        for name in columns {
            let shard = format!("{}:{{{APP}/{}}}", loaded.stack.namespace, range.shard);
            // The low bytes, and the high bytes as far as there are any.
            for plane in ["", "h"] {
                let column = format!("{shard}:{plane}{name}.{segment}");
                pipe.getrange(column, first, first + (to - from) as isize - 1);
            }
        }
        let columns: Vec<redis::Value> = pipe.query_async(&mut raw).await?;
        for column in columns {
            let redis::Value::BulkString(column) = column else { continue };
            bytes += column.len();
        }
        from = to;
    }
    Ok(bytes)
}
