//! Devices that no push reaches, because their app has no account at the provider of their transport.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use push_index::{CarrierExtent, Index, Selection};
use push_model::{app::AppKey, targeting::Targeting, time::UnixMillis};
use push_store::{Finding, IndexError};

use crate::doctor::{APPS_NAMED, servers::engine::Engine};

const SUBJECT: &str = "accounts";
/// The most apps that are asked for at once.
const APPS_AT_ONCE: usize = 16;

/// Names the apps that have such devices, with their number.
pub(in crate::doctor) async fn judge(index: &dyn Index, engine: &Engine) -> Finding {
    match unreached(index).await {
        Ok((0, _)) => Finding::ok(SUBJECT, "every app has one for each transport of its devices"),
        Ok((apps, named)) => Finding::warning(
            SUBJECT,
            format!("{apps} apps have devices of transports without one: {}", named.join(", ")),
            "make them with `pushctl app transport set`; pushes to these devices fail until then",
        ),
        Err(error) => engine.store_failed(SUBJECT, &error),
    }
}

/// Returns how many apps have such devices, and a text for each of the first of them. Only their devices are
/// counted, because that reads a column of the index.
async fn unreached(index: &dyn Index) -> Result<(usize, Vec<String>), IndexError> {
    let apps = index.apps().await?;
    let extents = stream::iter(&apps).map(async |app| {
        let extents = index.carriers(&AppKey::from(app)).await?;
        let lacks = |extent: &CarrierExtent| app.check_account(extent.carrier.kind()).is_err();
        Ok::<_, IndexError>((app, extents.into_iter().filter(lacks).collect::<Vec<_>>()))
    });
    let mut unreached: Vec<_> = extents.buffered(APPS_AT_ONCE).try_collect().await?;
    unreached.retain(|(_, extents)| !extents.is_empty());
    let mut named = Vec::new();
    for (app, extents) in unreached.iter().take(APPS_NAMED) {
        let kind = |extent: &CarrierExtent| extent.carrier.kind();
        // The carriers of a transport come one after another.
        for extents in extents.chunk_by(|one, other| kind(one) == kind(other)) {
            let mut devices = 0;
            for extent in extents {
                devices += count(index, &AppKey::from(*app), extent).await?;
            }
            let kinds = extents.first().map(kind);
            named.extend(kinds.map(|k| format!("{} has {devices} of {}", app.app_id, k.name())));
        }
    }
    Ok((unreached.len(), named))
}

async fn count(
    index: &dyn Index,
    app: &AppKey,
    CarrierExtent { carrier, ranges }: &CarrierExtent,
) -> Result<u64, IndexError> {
    let (everyone, now) = (Targeting::default(), UnixMillis::now());
    let mut devices = 0;
    for range in ranges {
        devices += index
            .count_matching(
                app,
                *range,
                Selection { carrier: *carrier, targeting: &everyone, registered_by: now },
            )
            .await?;
    }
    Ok(devices)
}
