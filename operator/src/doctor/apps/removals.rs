//! Apps whose gone devices are not removed, because too many were reported in a short time.

use futures::future;
use push_index::{AppKey, Index};
use push_model::time::UnixMillis;
use push_store::{Finding, IndexError};

use crate::doctor::servers::engine::Engine;

/// The most apps that a finding names.
const APPS_NAMED: usize = 10;

/// Apps that are asked about at the same time.
const APPS_AT_ONCE: usize = 32;

const SUBJECT: &str = "gone devices";

/// Names the apps whose removals are stopped.
pub(in crate::doctor) async fn judge(
    index: &dyn Index,
    engine: &Engine,
    now: UnixMillis,
) -> Finding {
    match stopped(index, now).await {
        Ok(stopped) => finding(&stopped),
        Err(error) => engine.store_failed(SUBJECT, &error),
    }
}

async fn stopped(
    index: &dyn Index,
    now: UnixMillis,
) -> Result<Vec<(AppKey, UnixMillis)>, IndexError> {
    let mut stopped = Vec::new();
    for some in index.apps().await?.chunks(APPS_AT_ONCE) {
        let asked = some.iter().map(async |app| {
            let app = AppKey::from(app);
            let until = index.removals_stopped_until(&app).await?;
            Ok::<_, IndexError>(until.filter(|until| *until > now).map(|until| (app, until)))
        });
        stopped.extend(future::try_join_all(asked).await?.into_iter().flatten());
    }
    Ok(stopped)
}

fn finding(stopped: &[(AppKey, UnixMillis)]) -> Finding {
    if stopped.is_empty() {
        return Finding::ok(SUBJECT, "are removed");
    }
    let named = |(app, until): &(AppKey, UnixMillis)| format!("{} (until {until})", app.id);
    let mut names: Vec<_> = stopped.iter().take(APPS_NAMED).map(named).collect();
    if stopped.len() > APPS_NAMED {
        names.push(format!("and {} more", stopped.len() - APPS_NAMED));
    }
    Finding::warning(
        SUBJECT,
        format!(
            "so many were reported in a short time that none are removed for: {}",
            names.join(", ")
        ),
        "check the app's accounts at its providers (`pushctl app transport list APP_ID`) and what was \
         removed before (`pushctl device gone APP_ID --since 1d`); if the devices are really gone, run the \
         workers with --gone-limit-percent 100 until a broadcast has removed them",
    )
}

#[cfg(test)]
mod tests {
    use push_store::Level;

    use super::*;

    #[test]
    fn apps_whose_removals_are_stopped_are_named_with_what_to_do() {
        assert_eq!(finding(&[]).level, Level::Ok);
        let app = AppKey::first("shop".parse().unwrap());
        let found = finding(&[(app, UnixMillis(0))]);
        assert_eq!(found.level, Level::Warning);
        assert!(found.detail.contains("shop (until 1970-"), "{found:?}");
    }
}
