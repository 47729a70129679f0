//! Three criteria over all devices of an app, as the worker evaluates them.

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use futures::{StreamExt, TryStreamExt, stream};
use push_index::Index;
use push_model::{
    app::AppKey, attributes::Attribute, slots::SlotRange, targeting::Targeting, time::UnixMillis,
};
use push_tests::stack::APP;
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use crate::{
    crowd::{self, WANTED, WANTED_MODELS},
    load::Rounds,
    report::{Figure, Row, Target},
    world::{Crowd, World},
};

/// Slices that are evaluated at once, and pipelines of the raw reader.
const AT_ONCE: usize = 8;
/// The target is for apps from this size on; in a smaller one most of the time is that of asking
/// each of the shards at all.
const LARGE: usize = 1_000_000;
/// Slots of one string of a column.
const SEGMENT: u32 = 2046 * 16;

pub(crate) async fn run(world: &World) -> anyhow::Result<Vec<Row>> {
    let of = crowd::wanted(world.sizes.small);
    let small = Audience::open(world.small().await?, &WANTED, 0, of[0]).await?;
    let of = crowd::wanted(world.sizes.big);
    let big = Audience::open(world.big().await?, &WANTED, 0, of[0]).await?;
    let models = Audience::open(world.big().await?, &WANTED_MODELS, 1, of[1]).await?;
    // A round of either takes as long, so that none is a matter of one moment.
    let repeated = (world.sizes.big / world.sizes.small).max(1);
    let (mut of_small, mut of_big, mut of_models, mut growth) =
        (Rounds::default(), Rounds::default(), Rounds::default(), Rounds::default());
    // The first round reads the dictionaries and warms the connections.
    for round in 0..=world.sizes.rounds * 3 {
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
    for (size, rounds) in [(world.sizes.small, &of_small), (world.sizes.big, &of_big)] {
        let (figure, ceiling, ratio) = rounds.medians();
        rows.push(Row {
            what: format!("targeting, {} devices", Figure::new(size as f64, "").to_string().trim()),
            figure: Figure::new(figure, "ms/M"),
            ceiling: Some(Figure::new(ceiling, "ms/M")),
            ratio: Some(ratio),
            target: if size >= LARGE { Target::AtMost(6.0) } else { Target::None },
            how: format!(
                "2 countries, 3 languages, 2 brands counted by the index engine, {AT_ONCE} slices \
                 at once, per million devices. Ceiling, in turn: GETRANGE of the same three \
                 columns, {AT_ONCE} at once, thrown away",
            ),
        });
    }
    let (figure, ceiling, ratio) = of_models.medians();
    rows.push(Row {
        what: "targeting, one of 300 values".to_owned(),
        figure: Figure::new(figure, "ms/M"),
        ceiling: Some(Figure::new(ceiling, "ms/M")),
        ratio: Some(ratio),
        target: Target::None,
        how: format!(
            "{} devices, 2 models in place of the brands: their column has high bytes too",
            world.sizes.big
        ),
    });
    let (big, small, ratio) = growth.medians();
    let from_large = world.sizes.small >= LARGE;
    rows.push(Row {
        what: "targeting, cost of a device when there are more".to_owned(),
        figure: Figure::new(big, "ms/M"),
        ceiling: Some(Figure::new(small, "ms/M")),
        ratio: Some(ratio),
        target: if from_large { Target::RatioAtMost(1.15) } else { Target::None },
        how: format!(
            "{} devices over {} devices, in turn, the smaller app {repeated} times in a row",
            world.sizes.big, world.sizes.small
        ),
    });
    Ok(rows)
}

/// The devices of a crowd, and how they are looked at.
struct Audience<'a> {
    crowd: &'a Crowd,
    index: Arc<dyn Index>,
    raw: MultiplexedConnection,
    app: AppKey,
    extent: Vec<SlotRange>,
    wanted: &'a [(Attribute, &'a [&'a str])],
    /// How many of their columns have high bytes.
    high: usize,
    targeting: Targeting,
    /// How many devices are meant.
    expected: u64,
}

impl<'a> Audience<'a> {
    async fn open(
        crowd: &'a Crowd,
        wanted: &'a [(Attribute, &'a [&'a str])],
        high: usize,
        expected: u64,
    ) -> anyhow::Result<Self> {
        let index = crowd.index().await?;
        let app = AppKey::first(APP.parse()?);
        let mut targeting = Targeting::everyone();
        for (attribute, values) in wanted {
            let values = values.iter().map(|value| attribute.normalise_wanted(value));
            targeting.set(*attribute, values.collect::<Result<_, _>>()?);
        }
        let extent = index.extent(&app).await?;
        let client = redis::Client::open(crowd.redis.url())?;
        let raw = client.get_multiplexed_async_connection().await?;
        Ok(Self { crowd, index, raw, app, extent, wanted, high, targeting, expected })
    }

    /// Milliseconds per million devices, so often in a row.
    fn per_million(&self, took: Duration, repeated: usize) -> f64 {
        took.as_secs_f64() * 1e3 / (self.crowd.size * repeated) as f64 * 1e6
    }

    /// Counts who is meant.
    async fn count(&self, repeated: usize) -> anyhow::Result<f64> {
        let now = UnixMillis::now();
        let started = Instant::now();
        for _ in 0..repeated {
            let count = |slice: &SlotRange| {
                self.index.count_matching(&self.app, *slice, &self.targeting, now)
            };
            let found: u64 = stream::iter(self.extent.iter().map(count))
                .buffer_unordered(AT_ONCE)
                .try_fold(0, |sum, count| async move { Ok(sum + count) })
                .await?;
            ensure!(found == self.expected, "{found} devices match, not {}", self.expected);
        }
        Ok(self.per_million(started.elapsed(), repeated))
    }

    /// Reads what that needs, and no more.
    async fn read(&self, repeated: usize) -> anyhow::Result<f64> {
        let slots: u64 = self.extent.iter().map(|slice| u64::from(slice.to - slice.from)).sum();
        // High bytes end where the last device has one: somewhere in each segment.
        let low = slots as usize * self.wanted.len();
        let most = low + slots as usize * self.high;
        let started = Instant::now();
        for _ in 0..repeated {
            let read =
                |slice: &SlotRange| read_columns(self.raw.clone(), self.crowd, self.wanted, *slice);
            let bytes: usize = stream::iter(self.extent.iter().map(read))
                .buffer_unordered(AT_ONCE)
                .try_fold(0, |sum, bytes| async move { Ok(sum + bytes) })
                .await?;
            let whole = (low..=most).contains(&bytes) && (bytes > low) == (self.high > 0);
            ensure!(whole, "{bytes} bytes of columns in place of {low} and some up to {most}");
        }
        Ok(self.per_million(started.elapsed(), repeated))
    }
}

/// Reads the columns of the criteria and throws them away.
async fn read_columns(
    mut raw: MultiplexedConnection,
    crowd: &Crowd,
    wanted: &[(Attribute, &[&str])],
    slice: SlotRange,
) -> anyhow::Result<usize> {
    let mut bytes = 0;
    let mut from = slice.from;
    while from < slice.to {
        let segment = from / SEGMENT;
        let to = slice.to.min((segment + 1) * SEGMENT);
        let mut pipe = redis::pipe();
        let first = (from % SEGMENT) as isize;
        for (attribute, _) in wanted {
            let shard = format!("{}:{{{APP}/{}}}", crowd.stack.namespace, slice.shard);
            // The low bytes, and what there is of high ones.
            for plane in ["", "h"] {
                let column = format!("{shard}:{plane}{}.{segment}", attribute.index());
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
