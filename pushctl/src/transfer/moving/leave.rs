//! The source of a move: its apps are marked before anything is copied, and the mark must still be there
//! when all devices of an app are at the target. So an app that another command takes back meanwhile does
//! not go into service in both stores. Between that look and the last step at the target, which is another
//! store, it can still be taken back unnoticed.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use indicatif::ProgressBar;
use push_index::Index;
use push_model::{app::App, ids::AppId, time::UnixMillis};

use super::{Stores, plan::Plan};

/// How often an app is read again that another program has changed meanwhile.
const CHANGE_TRIES: usize = 5;

/// Marks the apps at the source, if that was not done before; gives their records.
pub(super) async fn leave(
    stores: &Stores,
    apps: Vec<App>,
    plans: &[Plan],
) -> anyhow::Result<Vec<App>> {
    let mut leaving = Vec::new();
    for (app, plan) in apps.into_iter().zip(plans) {
        let is_here = matches!(plan, Plan::Take(_)) && app.moved_to.is_none();
        leaving.push(if is_here { mark(stores, &app.app_id).await? } else { app });
    }
    Ok(leaving)
}

async fn mark(stores: &Stores, id: &AppId) -> anyhow::Result<App> {
    for _ in 0..CHANGE_TRIES {
        let mut app =
            stores.from.app(id).await?.with_context(|| format!("{id} was removed meanwhile"))?;
        match &app.moved_to {
            Some(moved) if moved.store == stores.to_name => return Ok(app),
            Some(moved) => bail!("{id} is moving to {} since {}", moved.store, moved.at),
            None => {}
        }
        app.leave(stores.to_name.clone(), UnixMillis::now());
        if stores.from.update_app(&app).await? {
            app.revision = app.revision.saturating_add(1);
            return Ok(app);
        }
    }
    bail!("{id} is being changed by other programs at this moment: try again")
}

/// Waits until no program has the records from before the apps were marked.
pub(super) async fn wait_until_noticed(
    apps: &[App],
    plans: &[Plan],
    notice: Duration,
    bar: &ProgressBar,
) {
    let taken = apps.iter().zip(plans).filter(|(_, plan)| matches!(plan, Plan::Take(_)));
    let marked = taken.filter_map(|(app, _)| app.moved_to.as_ref().map(|moved| moved.at)).max();
    let Some(marked) = marked else { return };
    // A mark of the future is one of another machine.
    let left = notice.saturating_sub(UnixMillis::now().since(marked));
    if !left.is_zero() {
        bar.set_message(format!("waiting {} s until programs notice", left.as_secs_f32().ceil()));
        tokio::time::sleep(left).await;
    }
}

/// Refuses an app whose mark was taken away or replaced while it was copied.
pub(super) async fn check_mark(from: &dyn Index, marked: &App) -> anyhow::Result<()> {
    let now = from.app(&marked.app_id).await?;
    ensure!(
        now.is_some_and(
            |now| now.created_at == marked.created_at && now.moved_to == marked.moved_to
        ),
        "{}: it was taken back into service or removed in the store that it leaves while it was copied, \
         so it is not in service at the target: move it again, or give the copy up with pushctl app \
         remove there",
        marked.app_id
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use push_index::{
        Apps as _,
        sqlite::{SqliteIndex, SqliteIndexSettings},
    };
    use push_model::secret::Secret;

    use super::*;

    #[tokio::test]
    async fn an_app_that_leaves_for_one_store_is_not_taken_to_another() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("index.sqlite3");
        let from = SqliteIndex::open(&file, "push", SqliteIndexSettings::default()).await.unwrap();
        let from = Arc::new(from);
        let app = App::new("news".parse().unwrap(), &Secret::generate(), UnixMillis(1));
        assert!(from.create_app(&app).await.unwrap());
        let to = |name: &str| Stores {
            from: from.clone(),
            to: from.clone(),
            from_name: "here".to_owned(),
            to_name: name.to_owned(),
        };
        let marked = mark(&to("there"), &app.app_id).await.unwrap();
        check_mark(&*from, &marked).await.unwrap();
        assert_eq!(mark(&to("there"), &app.app_id).await.unwrap().moved_to, marked.moved_to);
        let error = mark(&to("elsewhere"), &app.app_id).await.unwrap_err().to_string();
        assert!(error.contains("is moving to there"), "{error}");

        let back = App { moved_to: None, ..from.app(&app.app_id).await.unwrap().unwrap() };
        assert!(from.update_app(&back).await.unwrap());
        let error = check_mark(&*from, &marked).await.unwrap_err().to_string();
        assert!(error.contains("taken back into service"), "{error}");
    }
}
