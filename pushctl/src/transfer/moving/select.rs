//! Which apps are to be moved.

use anyhow::{Context as _, bail};
use push_index::{Index, IndexError};
use push_model::{app::App, ids::AppId};
use push_service::engines::IndexUrl;

use super::{Stores, args::MoveSettings};

/// The records of the apps to move: those that were named, or all.
pub(super) async fn selected(
    from: &dyn Index,
    settings: &MoveSettings,
) -> anyhow::Result<Vec<App>> {
    let store = &settings.from.url;
    if settings.apps.is_empty() {
        let cannot = || format!("cannot list the apps of {store}: --app moves those that it names");
        return from.apps().await.with_context(cannot);
    }
    let mut apps = Vec::with_capacity(settings.apps.len());
    // Each by itself: another app whose record is unreadable keeps none of them from being moved.
    for name in &settings.apps {
        match from.app(name).await? {
            Some(app) => apps.push(app),
            None => bail!(missing(from, name, store).await?),
        }
    }
    apps.sort_unstable_by(|a, b| a.app_id.cmp(&b.app_id));
    apps.dedup_by(|a, b| a.app_id == b.app_id);
    Ok(apps)
}

/// Why an app that was named is not in the store.
async fn missing(from: &dyn Index, name: &AppId, store: &IndexUrl) -> anyhow::Result<String> {
    Ok(match from.arrival(name).await? {
        Some(arrival) => format!(
            "{name} is still on its way to the store at {store} from {}: run the command that takes it there \
             again until it succeeds, and move it after that",
            arrival.origin
        ),
        None => format!("there is no app {name} in the store at {store}"),
    })
}

/// The apps on their way from the target to the source. They are not among those of the source yet, so a move
/// of all apps leaves them out. `apps` are those of the source.
///
/// # Errors
/// If a store does not answer.
pub(super) async fn still_arriving(stores: &Stores, apps: &[App]) -> anyhow::Result<Vec<AppId>> {
    let mut arriving = Vec::new();
    let at_target = match stores.to.apps().await {
        // Nothing of the move depends on it: an app whose own record is unreadable there fails by itself.
        Err(IndexError::Corrupt(_)) => Vec::new(),
        answer => answer.with_context(|| format!("cannot list the apps of {}", stores.to_name))?,
    };
    for App { app_id, moved_to, .. } in at_target {
        let Some(moved) = moved_to.filter(|moved| moved.store == stores.from_name) else {
            continue;
        };
        // A record of before, when it went on from here, is not that of the app that comes back.
        let is_here = |known: &App| known.app_id == app_id && known.moved_to.is_none();
        let is_missing = !apps.iter().any(is_here);
        // One that was in service may have been removed since.
        if is_missing && (!moved.may_be_in_service || stores.from.arrival(&app_id).await?.is_some())
        {
            arriving.push(app_id);
        }
    }
    Ok(arriving)
}

#[cfg(test)]
mod tests {
    use push_model::{
        secret::Secret,
        time::UnixMillis,
        transfer::{Arrival, Position},
    };

    use super::*;
    use crate::transfer::moving::testing::store;

    #[tokio::test]
    async fn apps_on_their_way_to_the_source_are_known_and_those_that_came_or_were_removed_are_not()
    {
        let ((from, _one), (to, _other)) = (store().await, store().await);
        let stores = Stores {
            from: from.clone(),
            to: to.clone(),
            from_name: "here".to_owned(),
            to_name: "there".to_owned(),
        };
        let arrives = ["arrived", "back", "copied", "elsewhere", "marked", "removed", "stays"];
        for name in arrives {
            let mut app = App::new(name.parse().unwrap(), &Secret::generate(), UnixMillis(1));
            if name == "arrived" {
                assert!(from.create_app(&app).await.unwrap());
            }
            if name == "back" {
                // It went on to a third store from here, and is on its way back from the target.
                let mut before = app.clone();
                before.leave("elsewhere".to_owned(), UnixMillis(1));
                assert!(from.create_app(&before).await.unwrap());
            }
            if name == "copied" {
                let arrival = Arrival {
                    created_at: app.created_at,
                    generation: 0,
                    origin: "there".to_owned(),
                    attempt: String::new(),
                    begun_at: UnixMillis(2),
                    position: Position::default(),
                };
                assert!(from.begin_arrival(&app.app_id, &arrival).await.unwrap());
            }
            match name {
                "stays" => {}
                "elsewhere" => app.leave("elsewhere".to_owned(), UnixMillis(2)),
                _ => app.leave("here".to_owned(), UnixMillis(2)),
            }
            if let Some(moved) = &mut app.moved_to {
                moved.may_be_in_service = !["back", "elsewhere", "marked"].contains(&name);
            }
            assert!(to.create_app(&app).await.unwrap());
        }
        let apps = from.apps().await.unwrap();
        let arriving = still_arriving(&stores, &apps).await.unwrap();
        let arriving: Vec<_> = arriving.iter().map(AppId::as_str).collect();
        assert_eq!(arriving, ["back", "copied", "marked"]);
    }
}
