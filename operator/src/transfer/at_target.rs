//! Decides if an app may come to a store, from what the store knows of its name.

use push_index::Index;
use push_model::{
    app::App,
    ids::AppId,
    time::UnixMillis,
    transfer::{Arrival, Position},
};
use push_store::IndexError;

/// The target's knowledge of an app's name.
#[derive(Debug, Default)]
pub(super) struct AtTarget {
    pub(super) app: Option<App>,
    pub(super) arrival: Option<Arrival>,
    /// The number of apps of the name that were removed.
    pub(super) removed: u64,
}

impl AtTarget {
    pub(super) async fn read(target: &dyn Index, id: &AppId) -> Result<Self, IndexError> {
        Ok(Self {
            app: target.app(id).await?,
            arrival: target.arrival(id).await?,
            removed: target.removed_apps(id).await?,
        })
    }
}

/// Decides how to take an app from `origin` to a store.
///
/// # Errors
/// If that cannot be: why, and what to do about it.
pub(super) fn take(
    app: &App,
    there: &AtTarget,
    origin: &str,
    new_logins: bool,
    now: UnixMillis,
) -> Result<Arrival, String> {
    let id = &app.app_id;
    if let Some(record) = &there.app {
        match &record.moved_to {
            None if record.created_at == app.created_at => {
                return Err(
                    "the store that it goes to has an app of this name already, and it is this very app: to \
                     restore it there, remove it first; for a move, find out whether both are one store under two names, \
                     before you remove it in either"
                        .to_owned(),
                );
            }
            None => {
                return Err(
                    "the store that it goes to has an app of this name already: remove that \
                            one first, if it is not needed"
                        .to_owned(),
                );
            }
            // Anything else that is there may be the only copy of an app.
            Some(moved) if moved.store != origin => {
                return Err(format!(
                    "the store that it goes to has an app of this name that moves or has moved to {}: only \
                     from there it comes back; finish that, or remove it there with pushctl app remove {id}",
                    moved.store
                ));
            }
            Some(moved) if record.created_at != app.created_at => {
                return Err(format!(
                    "the store that it goes to still has another app of this name, which has moved to {}: \
                     remove that there with pushctl app remove {id}",
                    moved.store
                ));
            }
            Some(_) => {}
        }
    }
    if let Some(arrival) = &there.arrival {
        if arrival.created_at != app.created_at {
            return Err(format!(
                "another app of this name is on its way there, from {} since {}: finish that first, or \
                 give it up with pushctl app remove {id} there",
                arrival.origin, arrival.begun_at
            ));
        }
        // Devices from another origin are compared in the end, as all are.
        let is_same = arrival.origin == origin;
        let position = if is_same { arrival.position } else { Position::default() };
        return Ok(Arrival { origin: origin.to_owned(), position, ..arrival.clone() });
    }
    if there.removed > app.generation && !new_logins {
        return Err(
            "the store that it goes to has removed an app of this name, so the MQTT logins of the \
                    devices would end and they would have to register again: if they may, add \
                    --new-logins"
                .to_owned(),
        );
    }
    if there.app.is_some() && there.removed != app.generation {
        return Err(format!(
            "the store that it goes to still has an app of this name that has moved away: remove that \
             there with pushctl app remove {id}"
        ));
    }
    Ok(Arrival {
        created_at: app.created_at,
        generation: app.generation.max(there.removed),
        origin: origin.to_owned(),
        attempt: String::new(),
        begun_at: now,
        position: Position::default(),
    })
}

#[cfg(test)]
mod tests {
    use push_model::secret::Secret;

    use super::*;

    const NOW: UnixMillis = UnixMillis(100);

    fn app(created_at: u64, generation: u64) -> App {
        let app = App::new("a".parse().unwrap(), &Secret::generate(), UnixMillis(created_at));
        App { generation, ..app }
    }

    fn from_here(app: &App, there: &AtTarget) -> Result<Arrival, String> {
        take(app, there, "here", false, NOW)
    }

    #[test]
    fn an_app_is_taken_with_its_generation_to_where_its_name_is_free() {
        let begun = from_here(&app(1, 3), &AtTarget::default()).unwrap();
        assert_eq!((begun.generation, begun.position), (3, Position::default()));
        let removed = |removed| AtTarget { removed, ..AtTarget::default() };
        assert_eq!(from_here(&app(1, 3), &removed(3)).unwrap().generation, 3);
        let error = from_here(&app(1, 3), &removed(4)).unwrap_err();
        assert!(error.contains("--new-logins"), "{error}");
        let anyway = take(&app(1, 3), &removed(4), "here", true, NOW).unwrap();
        assert_eq!(anyway.generation, 4);
    }

    #[test]
    fn what_is_on_its_way_goes_on_if_it_is_the_same_app_from_the_same_store() {
        let position = Position { shard: 1, slot: 2 };
        let begun = from_here(&app(1, 0), &AtTarget::default()).unwrap();
        let arriving = |created_at: u64, origin: &str| AtTarget {
            arrival: Some(Arrival {
                created_at: UnixMillis(created_at),
                origin: origin.to_owned(),
                position,
                ..begun.clone()
            }),
            ..AtTarget::default()
        };
        assert_eq!(from_here(&app(1, 0), &arriving(1, "here")).unwrap().position, position);
        let other = from_here(&app(1, 0), &arriving(1, "elsewhere")).unwrap();
        assert_eq!((other.position, &*other.origin), (Position::default(), "here"));
        let error = from_here(&app(1, 0), &arriving(2, "here")).unwrap_err();
        assert!(error.contains("another app of this name is on its way"), "{error}");
    }

    #[test]
    fn an_app_replaces_only_its_own_record_that_says_it_went_to_where_it_comes_from() {
        let there = |mut app: App, went_to: Option<&str>| {
            if let Some(store) = went_to {
                app.leave(store.to_owned(), NOW);
            }
            AtTarget { removed: app.generation, app: Some(app), arrival: None }
        };
        assert!(from_here(&app(1, 0), &there(app(1, 0), Some("here"))).is_ok());
        for (created_at, went_to) in [
            (1, None),
            (2, None),
            (1, Some("elsewhere")),
            (2, Some("elsewhere")),
            (2, Some("here")),
        ] {
            let refused = from_here(&app(1, 0), &there(app(created_at, 0), went_to));
            assert!(refused.is_err(), "{created_at} {went_to:?}");
        }
    }
}
