//! Three criteria over all devices of an app, as the worker evaluates them.

use anyhow::ensure;
use futures::{StreamExt, TryStreamExt, stream};
use push_shared::{ids::AppId, index::Slice, targeting::Targeting, time::UnixMillis};
use push_tests::stack::APP;
use tokio::time::Instant;

use crate::{
    crowd::{self, WANTED},
    load::Rounds,
    report::{Figure, Row, Target},
    world::{Crowd, World},
};

/// Slices that are evaluated at once, and pipelines of the raw reader.
const AT_ONCE: usize = 8;
/// A slot of one column, in bytes: none of these attributes has more than 255 values.
const CODE: usize = 1;
/// The target is for apps from this size on; in a smaller one most of the time is that of asking
/// each of the shards at all.
const LARGE: usize = 1_000_000;
/// Slots of one string of a column.
const SEGMENT: u32 = 2046 * 16;

pub(crate) async fn run(world: &World) -> anyhow::Result<Vec<Row>> {
    let small = measure(world, world.small().await?).await?;
    let big = measure(world, world.big().await?).await?;
    let mut rows = Vec::new();
    for (size, rounds) in [(world.sizes.small, &small), (world.sizes.big, &big)] {
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
    let (small, big) = (small.medians().0, big.medians().0);
    let from_large = world.sizes.small >= LARGE;
    rows.push(Row {
        what: "targeting, cost of a device when there are more".to_owned(),
        figure: Figure::new(big, "ms/M"),
        ceiling: Some(Figure::new(small, "ms/M")),
        ratio: Some(big / small),
        target: if from_large { Target::RatioAtMost(1.15) } else { Target::None },
        how: format!("{} devices over {} devices", world.sizes.big, world.sizes.small),
    });
    Ok(rows)
}

/// Milliseconds per million devices.
async fn measure(world: &World, crowd: &Crowd) -> anyhow::Result<Rounds> {
    let index = crowd.index().await?;
    let app: AppId = APP.parse()?;
    let mut targeting = Targeting::everyone();
    for (attribute, values) in WANTED {
        let values = values.iter().map(|value| attribute.normalise_wanted(value));
        targeting.set(attribute, values.collect::<Result<_, _>>()?);
    }
    let extent = index.extent(&app).await?;
    let slots: u64 = extent.iter().map(|slice| u64::from(slice.to - slice.from)).sum();
    let expected = crowd::wanted(crowd.size);
    let client = redis::Client::open(crowd.redis.url())?;
    let raw = client.get_multiplexed_async_connection().await?;
    let (now, millions) = (UnixMillis::now(), crowd.size as f64 / 1e6);
    let mut rounds = Rounds::default();
    // The first round reads the dictionaries and warms both connections.
    for round in 0..=world.sizes.rounds * 3 {
        let started = Instant::now();
        let counts = extent.iter().map(|slice| index.count_matching(&app, *slice, &targeting, now));
        let found: u64 = stream::iter(counts)
            .buffer_unordered(AT_ONCE)
            .try_fold(0, |sum, count| async move { Ok(sum + count) })
            .await?;
        let figure = started.elapsed();
        ensure!(found == expected, "{found} devices match in place of {expected}");
        let started = Instant::now();
        let reads = extent.iter().map(|slice| read_columns(raw.clone(), crowd, *slice));
        let bytes: usize = stream::iter(reads)
            .buffer_unordered(AT_ONCE)
            .try_fold(0, |sum, bytes| async move { Ok(sum + bytes) })
            .await?;
        let ceiling = started.elapsed();
        let columns = slots as usize * CODE * WANTED.len();
        ensure!(bytes == columns, "{bytes} bytes of columns in place of {columns}");
        if round > 0 {
            let per_million = |time: std::time::Duration| time.as_secs_f64() * 1e3 / millions;
            rounds.add(per_million(figure), per_million(ceiling));
        }
    }
    Ok(rounds)
}

/// Reads the columns of the criteria and throws them away.
async fn read_columns(
    mut raw: redis::aio::MultiplexedConnection,
    crowd: &Crowd,
    slice: Slice,
) -> anyhow::Result<usize> {
    let mut bytes = 0;
    let mut from = slice.from;
    while from < slice.to {
        let segment = from / SEGMENT;
        let to = slice.to.min((segment + 1) * SEGMENT);
        let mut pipe = redis::pipe();
        for (attribute, _) in WANTED {
            let column = format!(
                "{}:{{{APP}/{}}}:{}.{segment}",
                crowd.stack.namespace,
                slice.shard,
                attribute.index()
            );
            let first = (from % SEGMENT) as usize * CODE;
            pipe.getrange(
                column,
                first as isize,
                (first + (to - from) as usize * CODE) as isize - 1,
            );
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
