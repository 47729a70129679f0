//! The source of a move: its apps are marked before anything is copied. When all devices of an app are at
//! the target, the mark says that the app may be in service there ([`MovedTo::may_be_in_service`]), and the
//! last step is made at the target. Until then the app can be taken back here, which takes the mark away,
//! so the move ends; from then on it cannot. Both change one record by compare-and-set, so an app is never
//! in service in both stores, although no step can change both of them.
//!
//! [`MovedTo::may_be_in_service`]: push_model::transfer::MovedTo::may_be_in_service

use std::time::Duration;

use anyhow::{Context as _, bail};
use indicatif::ProgressBar;
use push_index::Index;
use push_model::{app::App, ids::AppId, time::UnixMillis};

use super::{Failed, Stores, not_tried, plan::Plan};

/// How often an app is read again that another program has changed meanwhile.
const CHANGE_TRIES: usize = 5;

/// The apps of a move after they were marked.
#[derive(Default)]
pub(super) struct Left {
    /// Those that are marked, or need no mark.
    pub(super) apps: Vec<(App, Plan)>,
    /// Those that are not marked.
    pub(super) failed: Failed,
    /// Whether a store failed, so that no app can be moved now.
    pub(super) stores_failed: bool,
}

/// Marks the apps at the source, if that was not done before. One that cannot be marked keeps no other from
/// being moved: those that are marked already are out of service until they are.
pub(super) async fn leave(stores: &Stores, apps: Vec<(App, Plan)>) -> Left {
    let (mut left, mut apps) = (Left::default(), apps.into_iter());
    while !left.stores_failed
        && let Some((app, plan)) = apps.next()
    {
        if !plan.is_take() || app.moved_to.is_some() {
            left.apps.push((app, plan));
            continue;
        }
        match mark(stores, &app.app_id).await {
            Ok(marked) => left.apps.push((marked, plan)),
            Err(error) => {
                left.stores_failed = stores.have_failed(&error).await;
                left.failed.push((app.app_id, error));
            }
        }
    }
    left.failed.extend(not_tried(apps));
    left
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
pub(super) async fn wait_until_noticed(left: &Left, notice: Duration, bar: &ProgressBar) {
    if left.stores_failed {
        return;
    }
    let taken = left.apps.iter().filter(|(_, plan)| plan.is_take());
    let marked = taken.filter_map(|(app, _)| app.moved_to.as_ref().map(|moved| moved.at)).max();
    let Some(marked) = marked else { return };
    // A mark of the future is one of another machine.
    let left = notice.saturating_sub(UnixMillis::now().since(marked));
    if !left.is_zero() {
        bar.set_message(format!("waiting {} s until programs notice", left.as_secs_f32().ceil()));
        tokio::time::sleep(left).await;
    }
}

/// Says in the mark that the app may be in service at the target from now on.
///
/// # Errors
/// If the mark was taken away or replaced while the app was copied, or the store does not answer.
pub(super) async fn give_away(from: &dyn Index, marked: &App) -> anyhow::Result<()> {
    for _ in 0..CHANGE_TRIES {
        let now = from.app(&marked.app_id).await?;
        let is_this = |now: &App| {
            now.created_at == marked.created_at
                && match (&now.moved_to, &marked.moved_to) {
                    // A removal changes the record first, and then takes devices away that were to be copied.
                    (Some(to), Some(marked_to)) => {
                        to.is_same_move(marked_to)
                            && (to.may_be_in_service || now.revision == marked.revision)
                    }
                    _ => false,
                }
        };
        let Some(mut app) = now.filter(is_this) else {
            bail!(
                "{}: it was taken back into service or removed in the store that it leaves while it was \
                 copied, so it is not in service at the target: move it again, or give the copy up with \
                 pushctl app remove there",
                marked.app_id
            );
        };
        let Some(moved) = app.moved_to.as_mut().filter(|moved| !moved.may_be_in_service) else {
            return Ok(());
        };
        moved.may_be_in_service = true;
        if from.update_app(&app).await? {
            return Ok(());
        }
    }
    bail!("{} is being changed by other programs at this moment: try again", marked.app_id)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use push_model::secret::Secret;

    use super::*;
    use crate::transfer::moving::{AtTarget, move_each, not_moved, take, testing::store};

    fn stores(from: &Arc<dyn Index>, to_name: &str) -> Stores {
        Stores {
            from: from.clone(),
            to: from.clone(),
            from_name: "here".to_owned(),
            to_name: to_name.to_owned(),
        }
    }

    /// An app, and that it is to be taken.
    fn app(name: &str) -> (App, Plan) {
        let app = App::new(name.parse().unwrap(), &Secret::generate(), UnixMillis(1));
        let plan = take(&app, &AtTarget::default(), "here", false, UnixMillis(2)).unwrap();
        (app, Plan::Take(plan))
    }

    #[tokio::test]
    async fn an_app_that_cannot_be_marked_keeps_no_other_from_being_moved() {
        let (from, _folder) = store().await;
        let apps = ["gone", "news", "sport"].map(app);
        for (app, _) in &apps[1..] {
            assert!(from.create_app(app).await.unwrap());
        }
        let left = leave(&stores(&from, "there"), apps.into()).await;
        let marked: Vec<_> = left.apps.iter().map(|(app, _)| app.app_id.as_str()).collect();
        assert_eq!((marked, left.stores_failed), (vec!["news", "sport"], false));
        assert!(left.apps.iter().all(|(app, _)| app.moved_to.is_some()));
        let text = not_moved(left.failed).unwrap();
        assert!(text.contains("gone was removed meanwhile"), "{text}");
    }

    #[tokio::test]
    async fn apps_that_are_marked_when_a_store_fails_are_named_and_not_tried() {
        let (from, _folder) = store().await;
        let marked = app("news");
        assert!(from.create_app(&marked.0).await.unwrap());
        let stores = stores(&from, "there");
        let left = Left { stores_failed: true, ..leave(&stores, vec![marked]).await };
        let (moved, failed) = move_each(&stores, left, false, &ProgressBar::hidden()).await;
        let text = not_moved(failed).unwrap();
        assert!(moved.is_empty() && text.contains("news: it was not tried"), "{text}");
    }

    #[tokio::test]
    async fn an_app_that_leaves_for_one_store_is_not_taken_to_another() {
        let (from, _folder) = store().await;
        let (app, _) = app("news");
        assert!(from.create_app(&app).await.unwrap());
        let to = |name: &str| stores(&from, name);
        let marked = mark(&to("there"), &app.app_id).await.unwrap();
        assert_eq!(mark(&to("there"), &app.app_id).await.unwrap().moved_to, marked.moved_to);
        let error = mark(&to("elsewhere"), &app.app_id).await.unwrap_err().to_string();
        assert!(error.contains("is moving to there"), "{error}");

        let back = App { moved_to: None, ..from.app(&app.app_id).await.unwrap().unwrap() };
        assert!(from.update_app(&back).await.unwrap());
        let error = give_away(&*from, &marked).await.unwrap_err().to_string();
        assert!(error.contains("taken back into service"), "{error}");

        // The next attempt, and one that goes on after it was killed before its last step.
        let marked = mark(&to("there"), &app.app_id).await.unwrap();
        give_away(&*from, &marked).await.unwrap();
        give_away(&*from, &marked).await.unwrap();
        let again = mark(&to("there"), &app.app_id).await.unwrap();
        assert!(again.moved_to.as_ref().is_some_and(|moved| moved.may_be_in_service), "{again:?}");
        give_away(&*from, &again).await.unwrap();
    }

    #[tokio::test]
    async fn an_app_that_is_removed_while_it_is_copied_is_not_put_in_service() {
        let (from, _folder) = store().await;
        let (app, _) = app("news");
        assert!(from.create_app(&app).await.unwrap());
        let marked = mark(&stores(&from, "there"), &app.app_id).await.unwrap();
        // The first step of a removal in Redis, whose last one takes the record away.
        assert!(from.update_app(&marked).await.unwrap());
        let error = give_away(&*from, &marked).await.unwrap_err().to_string();
        assert!(error.contains("removed in the store that it leaves"), "{error}");
    }
}
