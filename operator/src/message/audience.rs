//! The devices that a push would target.

use anyhow::Context as _;
use push_boot::engines::Stores;
use push_index::count_audience;
use push_model::{app::AppKey, audience::AudienceReport, ids::AppId, message::Audience};

/// Counts the devices of an audience, in slices between which the index serves others. The caller bounds how
/// long that may take, and how many audiences are counted at the same time.
///
/// # Errors
/// If there is no such app, or the index did not answer.
pub async fn audience(
    stores: &Stores,
    app_id: &AppId,
    audience: &Audience,
) -> anyhow::Result<AudienceReport> {
    let app =
        stores.index.app(app_id).await?.with_context(|| format!("there is no app {app_id}"))?;
    let counts = count_audience(&*stores.index, &AppKey::from(&app), audience).await?;
    Ok(AudienceReport::of(counts, app.pace))
}
