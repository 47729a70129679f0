//! What to do with an app, decided from what both stores know of it, before anything is changed.

use push_model::{
    app::App,
    time::UnixMillis,
    transfer::{Arrival, Position},
};

/// What the target knows of an app's name.
#[derive(Debug, Default)]
pub(in crate::transfer) struct AtTarget {
    pub(in crate::transfer) app: Option<App>,
    pub(in crate::transfer) arrival: Option<Arrival>,
    /// How many apps of the name were removed.
    pub(in crate::transfer) removed: u64,
}

/// What to do with an app.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::transfer) enum Plan {
    /// Nothing: it was moved before.
    Done,
    /// Nothing: it went to this store, and all apps are moved that are still here.
    Elsewhere(String),
    /// Take it, from the beginning or from where an earlier attempt ended.
    Take(Arrival),
}

impl Plan {
    /// Whether the app is to be taken.
    pub(super) fn is_take(&self) -> bool {
        matches!(self, Self::Take(_))
    }
}

/// What the operator asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request<'a> {
    /// The store that the app leaves.
    pub(super) from: &'a str,
    /// The store that it goes to.
    pub(super) to: &'a str,
    /// Whether the app was named; if not, all are moved.
    pub(super) is_named: bool,
    /// Whether the logins of its devices may end.
    pub(super) new_logins: bool,
}

/// What to do with an app.
///
/// # Errors
/// Why it cannot be moved, and what to do about it.
pub(super) fn plan(
    app: &App,
    there: &AtTarget,
    request: Request<'_>,
    now: UnixMillis,
) -> Result<Plan, String> {
    if let Some(moved) = &app.moved_to {
        let this_there = there.app.as_ref().filter(|record| record.created_at == app.created_at);
        match this_there.map(|record| &record.moved_to) {
            Some(None) if moved.may_be_in_service => return Ok(Plan::Done),
            // It was never put in service there by a move from here.
            Some(None) => {
                return Err(format!(
                    "the store that it goes to has it already, from a backup or from a pushctl app remove \
                     that did not end: remove it there with pushctl app remove {}, or take it back here \
                     with pushctl app enable {0}",
                    app.app_id
                ));
            }
            // What is here is older than what is there. If its move has not ended, what is there is older.
            Some(Some(on)) if moved.may_be_in_service && moved.store == request.to => {
                if on.may_be_in_service && !request.is_named {
                    return Ok(Plan::Elsewhere(on.store.clone()));
                }
                return Err(format!(
                    "it has moved to {} and on from there to {}: move it from where it is, or, if that last \
                     move did not end, take it back there with pushctl app enable {}",
                    moved.store, on.store, app.app_id
                ));
            }
            _ => {}
        }
        if moved.store != request.to && !moved.may_be_in_service {
            return Err(format!(
                "its move to {} has not ended, so it is in service in neither store: finish that, or take \
                 it back with pushctl app enable {}",
                moved.store, app.app_id
            ));
        }
        if moved.store != request.to && !request.is_named {
            return Ok(Plan::Elsewhere(moved.store.clone()));
        }
        if moved.store != request.to {
            return Err(format!(
                "it has moved to {}: move it from there, or, if that move did all but its last step, finish \
                 it first",
                moved.store
            ));
        }
    }
    take(app, there, request.from, request.new_logins, now).map(Plan::Take)
}

/// How to take an app from `origin` to a store.
///
/// # Errors
/// Why that cannot be, and what to do about it.
pub(in crate::transfer) fn take(
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
            // The whole app is nowhere but there.
            Some(moved) if !moved.may_be_in_service => {
                return Err(format!(
                    "the store that it goes to has an app of this name whose move to {} has not ended: \
                     finish that, or take the app back there with pushctl app enable {id}",
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
        // What another origin had stored is compared in the end, as everything is.
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
    const REQUEST: Request<'_> =
        Request { from: "here", to: "there", is_named: true, new_logins: false };

    fn app(created_at: u64, generation: u64) -> App {
        let app = App::new("a".parse().unwrap(), &Secret::generate(), UnixMillis(created_at));
        App { generation, ..app }
    }

    /// Its move has begun.
    fn moving_to(store: &str, mut app: App) -> App {
        app.leave(store.to_owned(), NOW);
        app
    }

    /// Its move has ended.
    fn moved_to(store: &str, app: App) -> App {
        let mut app = moving_to(store, app);
        app.moved_to.as_mut().unwrap().may_be_in_service = true;
        app
    }

    fn decide(app: &App, there: AtTarget) -> Result<Plan, String> {
        plan(app, &there, REQUEST, NOW)
    }

    fn arrival(created_at: u64, origin: &str) -> Arrival {
        let position = Position { shard: 1, slot: 2 };
        let origin = origin.to_owned();
        Arrival {
            created_at: UnixMillis(created_at),
            generation: 0,
            origin,
            attempt: String::new(),
            begun_at: NOW,
            position,
        }
    }

    #[test]
    fn an_app_is_taken_with_its_generation_to_where_its_name_is_free() {
        let Ok(Plan::Take(begun)) = decide(&app(1, 3), AtTarget::default()) else { panic!() };
        assert_eq!((begun.generation, begun.position), (3, Position::default()));
        let removed = AtTarget { removed: 3, ..AtTarget::default() };
        assert!(matches!(decide(&app(1, 3), removed), Ok(Plan::Take(_))));
    }

    #[test]
    fn logins_end_only_if_the_operator_says_so() {
        let there = || AtTarget { removed: 4, ..AtTarget::default() };
        assert!(decide(&app(1, 3), there()).unwrap_err().contains("--new-logins"));
        let request = Request { new_logins: true, ..REQUEST };
        let taken = plan(&app(1, 3), &there(), request, NOW);
        let Ok(Plan::Take(begun)) = taken else { panic!() };
        assert_eq!(begun.generation, 4);
    }

    #[test]
    fn another_app_of_the_name_is_never_replaced() {
        let there = |app| AtTarget { app: Some(app), ..AtTarget::default() };
        assert!(decide(&app(1, 0), there(app(2, 0))).unwrap_err().contains("already"));
        assert!(decide(&app(1, 0), there(app(1, 0))).unwrap_err().contains("this very app"));
        let other = AtTarget { arrival: Some(arrival(2, "here")), ..AtTarget::default() };
        assert!(decide(&app(1, 0), other).unwrap_err().contains("another app"));
        let left = there(moved_to("x", app(1, 0)));
        assert!(matches!(decide(&app(1, 0), left), Ok(Plan::Take(_))), "it can come back");
        let left = AtTarget { removed: 1, ..there(moved_to("x", app(1, 1))) };
        assert!(decide(&app(1, 2), left).unwrap_err().contains("still has an app"));
        let other = there(moved_to("x", app(2, 0)));
        assert!(decide(&app(1, 0), other).unwrap_err().contains("another app of this name"));
        for created_at in [1, 2] {
            let leaving = there(moving_to("x", app(created_at, 0)));
            let error = decide(&app(1, 0), leaving).unwrap_err();
            assert!(error.contains("has not ended"), "its devices are nowhere else: {error}");
        }
    }

    #[test]
    fn an_app_that_went_on_from_where_it_moved_is_not_replaced_by_what_it_was_before() {
        let left = moved_to("there", app(1, 0));
        let there = |on| AtTarget { app: Some(on), ..AtTarget::default() };
        let all = Request { is_named: false, ..REQUEST };
        // Its move back has begun, and was killed.
        let back = there(moving_to("here", app(1, 0)));
        assert!(plan(&left, &back, all, NOW).unwrap_err().contains("and on from there to"));
        assert!(decide(&left, back).unwrap_err().contains("and on from there to"));
        let further = there(moved_to("further", app(1, 0)));
        assert_eq!(plan(&left, &further, all, NOW), Ok(Plan::Elsewhere("further".to_owned())));
        assert!(decide(&left, further).unwrap_err().contains("and on from there to"));
    }

    #[test]
    fn a_move_back_that_was_killed_before_its_first_device_goes_on() {
        let came_from = || {
            let app = moved_to("here", app(1, 0));
            AtTarget { app: Some(app), ..AtTarget::default() }
        };
        for is_named in [true, false] {
            let request = Request { is_named, ..REQUEST };
            let back = plan(&moving_to("there", app(1, 0)), &came_from(), request, NOW);
            assert!(
                matches!(back, Ok(Plan::Take(_))),
                "it is in service in neither store: {back:?}"
            );
            let further = plan(&moving_to("further", app(1, 0)), &came_from(), request, NOW);
            assert!(further.unwrap_err().contains("its move to further has not ended"));
        }
        let all = Request { is_named: false, ..REQUEST };
        let gone = plan(&moved_to("further", app(1, 0)), &came_from(), all, NOW);
        assert_eq!(gone, Ok(Plan::Elsewhere("further".to_owned())));
    }

    #[test]
    fn an_app_that_came_there_otherwise_does_not_count_as_moved() {
        let there = AtTarget { app: Some(app(1, 0)), ..AtTarget::default() };
        let error = decide(&moving_to("there", app(1, 0)), there).unwrap_err();
        assert!(error.contains("from a backup"), "{error}");
    }

    #[test]
    fn a_move_goes_on_where_it_was_if_it_comes_from_the_same_store() {
        let there = |origin| AtTarget { arrival: Some(arrival(1, origin)), ..AtTarget::default() };
        let leaving = moving_to("there", app(1, 0));
        let Ok(Plan::Take(on)) = decide(&leaving, there("here")) else { panic!() };
        assert_eq!(on, arrival(1, "here"));
        let Ok(Plan::Take(again)) = decide(&leaving, there("a backup")) else { panic!() };
        assert_eq!((again.position, again.origin.as_str()), (Position::default(), "here"));
    }

    #[test]
    fn an_app_that_has_moved_is_not_moved_again() {
        let there = || AtTarget { app: Some(app(1, 0)), ..AtTarget::default() };
        assert_eq!(decide(&moved_to("there", app(1, 0)), there()), Ok(Plan::Done));
        let gone = moved_to("elsewhere", app(1, 0));
        assert!(decide(&gone, AtTarget::default()).unwrap_err().contains("elsewhere"));
        let all = Request { is_named: false, ..REQUEST };
        let left_out = plan(&gone, &AtTarget::default(), all, NOW);
        assert_eq!(left_out, Ok(Plan::Elsewhere("elsewhere".to_owned())));
    }

    #[test]
    fn an_app_whose_move_elsewhere_has_not_ended_does_not_count_as_moved() {
        let leaving = moving_to("elsewhere", app(1, 0));
        for is_named in [true, false] {
            let request = Request { is_named, ..REQUEST };
            let error = plan(&leaving, &AtTarget::default(), request, NOW).unwrap_err();
            assert!(error.contains("in service in neither store"), "{error}");
        }
    }
}
