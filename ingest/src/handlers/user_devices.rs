//! The devices of the users that a push names, looked up when it is accepted.
//!
//! A user may have many devices, and a push may name many users. So they are looked up in pieces, no further than a
//! push may go, and the ids that were found are reserved in the memory of the app while they are kept.

use std::collections::{BTreeSet, HashMap, HashSet};

use push_model::{
    app::AppKey,
    ids::{ClientId, UserId},
    message::{Audience, NamedUsers},
};

use crate::{
    body::Reservation,
    index_client::{IndexClient, Subject},
    message::Wanted,
    rejection::Rejection,
};

/// The most users that the index is asked for in one request: all of them together have at most 3,200 devices.
const PIECE: usize = 32;
/// The most devices of a push that names users, as a multiple of the ids that it may name.
const DEVICES_PER_ID: usize = 10;
/// The most users of a warning that are named.
const MAX_NAMED: usize = 5;
/// The memory of an id beside its text, in bytes.
const ID_OVERHEAD: usize = 32;
/// The bytes of an id in a job beside its text.
const IN_JOB: usize = 3;

/// The devices of users.
#[derive(Debug, Default)]
pub(super) struct UserDevices {
    found: HashMap<UserId, Vec<ClientId>>,
    /// Why those of other users are not known.
    failure: Option<Rejection>,
}

/// What is left to look up for one push.
#[derive(Debug)]
struct Search<'w> {
    users: &'w [UserId],
    /// The devices of the users before these.
    devices: usize,
}

impl UserDevices {
    /// Looks up the devices of the users that pushes name. A push whose users have more devices than `most_ids` allow is
    /// refused by [`add_to`](Self::add_to), so no more users are looked up for it. `memory` reserves the ids, and is to be
    /// kept as long.
    pub(super) async fn of<'w>(
        index: &IndexClient,
        app: &AppKey,
        wanted: impl Iterator<Item = &'w Wanted>,
        most_ids: usize,
        memory: &mut Reservation,
    ) -> Self {
        let mut searches: Vec<_> =
            wanted.map(|Wanted { users, .. }| Search { users, devices: 0 }).collect();
        let mut devices = Self::default();
        loop {
            let piece = devices.next_piece(&mut searches, most_devices(most_ids));
            if piece.is_empty() {
                return devices;
            }
            if let Err(failure) = devices.find(index, app, &piece, memory).await {
                devices.failure = Some(failure);
                return devices;
            }
        }
    }

    /// Returns the users who are looked up next. None if all are known, of the pushes that are not refused.
    fn next_piece(&self, searches: &mut Vec<Search<'_>>, most: usize) -> Vec<UserId> {
        let mut piece = BTreeSet::new();
        searches.retain_mut(|search| {
            while let Some((user, rest)) = search.users.split_first()
                && let Some(found) = self.found.get(user)
            {
                search.devices += found.len();
                search.users = rest;
            }
            if search.devices > most {
                return false;
            }
            let unknown = search.users.iter().filter(|user| !self.found.contains_key(*user));
            piece.extend(unknown.take(PIECE.saturating_sub(piece.len())));
            !search.users.is_empty()
        });
        piece.into_iter().cloned().collect()
    }

    async fn find(
        &mut self,
        index: &IndexClient,
        app: &AppKey,
        users: &[UserId],
        memory: &mut Reservation,
    ) -> Result<(), Rejection> {
        let asked = index.index.user_devices(app, users);
        let found = index.ask(Subject::app(&app.id), asked).await?;
        let ids = found.iter().flatten();
        memory.grow(ids.map(|id| id.as_str().len() + ID_OVERHEAD).sum())?;
        self.found.extend(users.iter().cloned().zip(found));
        Ok(())
    }

    /// Adds the devices of its users to an audience, behind those that are named themselves. `memory` reserves what
    /// they take in the job. Returns what to say of it.
    ///
    /// # Errors
    /// If they are too many, or could not be looked up.
    pub(super) fn add_to(
        &self,
        wanted: &mut Wanted,
        most_ids: usize,
        memory: &mut Reservation,
    ) -> Result<Option<String>, Rejection> {
        let users = std::mem::take(&mut wanted.users);
        let Audience::Clients(named) = &mut wanted.audience else { return Ok(None) };
        if users.is_empty() {
            return Ok(None);
        }
        let limit = most_devices(most_ids);
        let mut clients = std::mem::take(named);
        let mut listed: HashSet<&ClientId> = HashSet::new();
        let (mut of_users, mut counted, mut without) = (Vec::new(), Vec::new(), Vec::new());
        for user in users {
            let Some(devices) = self.found.get(&user) else {
                let unknown = Rejection::Unavailable("the device index is unavailable");
                return Err(self.failure.clone().unwrap_or(unknown));
            };
            let before = of_users.len();
            for id in devices {
                // The named ones are sorted.
                if clients.binary_search(id).is_err() && listed.insert(id) {
                    of_users.push(id);
                }
            }
            // The users behind are not looked up then.
            if clients.len() + of_users.len() > limit {
                return Err(Rejection::TooManyUserDevices { limit });
            }
            if devices.is_empty() {
                without.push(user.clone());
            }
            counted.push((user, u32::try_from(of_users.len() - before).unwrap_or(u32::MAX)));
        }
        memory.grow(of_users.iter().map(|id| id.as_str().len() + IN_JOB).sum())?;
        clients.extend(of_users.into_iter().cloned());
        wanted.audience = Audience::Users(NamedUsers { clients, users: counted });
        Ok(warning(&without))
    }
}

/// The most devices of a push that names users.
fn most_devices(most_ids: usize) -> usize {
    most_ids.saturating_mul(DEVICES_PER_ID)
}

/// Says which users have no device.
fn warning(users: &[UserId]) -> Option<String> {
    let more = users.len().saturating_sub(MAX_NAMED);
    let named: Vec<_> = users.iter().take(MAX_NAMED).map(UserId::as_str).collect();
    let named = named.join(", ");
    match (users.len(), more) {
        (0, _) => None,
        (_, 0) => Some(format!("condition.user_ids: no device belongs to {named}")),
        _ => Some(format!("condition.user_ids: no device belongs to {named} and {more} others")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::body::{AppMemory, Purpose, tests::memory as budget};

    fn wanted(clients: &[&str], users: &[&str]) -> Wanted {
        let clients = clients.iter().map(|id| id.parse().unwrap()).collect();
        let users = users.iter().map(|id| id.parse().unwrap()).collect();
        Wanted { audience: Audience::Clients(clients), users }
    }

    fn devices(of: &[(&str, &[&str])]) -> UserDevices {
        let ids = |ids: &[&str]| ids.iter().map(|id| id.parse().unwrap()).collect();
        let found = of.iter().map(|(user, clients)| (user.parse().unwrap(), ids(clients)));
        UserDevices { found: found.collect(), failure: None }
    }

    fn memory() -> Reservation {
        let app = Arc::new(AppMemory::new(&budget(10_000, 10_000)));
        Reservation::empty(&app, Purpose::Single)
    }

    #[test]
    fn devices_of_users_follow_the_named_ones_and_each_is_listed_once() {
        let known = devices(&[("u", &["b", "c"]), ("v", &["c", "d"]), ("w", &[])]);
        let mut wanted = wanted(&["a", "b"], &["u", "v", "w"]);
        let told = known.add_to(&mut wanted, 2, &mut memory()).unwrap();
        assert_eq!(told.as_deref(), Some("condition.user_ids: no device belongs to w"));
        let ids = |ids: &[&str]| ids.iter().map(|id| id.parse().unwrap()).collect::<Vec<_>>();
        let users = [("u", 1), ("v", 1), ("w", 0)].map(|(user, n)| (user.parse().unwrap(), n));
        let clients = ids(&["a", "b", "c", "d"]);
        assert_eq!(wanted.audience, Audience::Users(NamedUsers { clients, users: users.into() }));
    }

    #[test]
    fn users_with_too_many_devices_are_refused_and_those_that_were_not_found_are_unavailable() {
        let many: Vec<_> = (0..11).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let known = devices(&[("u", &many)]);
        let refused = known.add_to(&mut wanted(&[], &["u"]), 1, &mut memory());
        assert_eq!(refused, Err(Rejection::TooManyUserDevices { limit: 10 }));
        assert!(known.add_to(&mut wanted(&[], &["u"]), 2, &mut memory()).is_ok());
        let unknown = known.add_to(&mut wanted(&[], &["x"]), 2, &mut memory());
        assert!(matches!(unknown, Err(Rejection::Unavailable(_))), "{unknown:?}");
    }

    #[test]
    fn no_more_users_are_looked_up_for_a_push_whose_users_have_too_many_devices() {
        let names = |from: usize, to: usize| (from..to).map(|n| format!("u{n:03}"));
        let ids = |from, to| names(from, to).map(|id| id.parse().unwrap()).collect::<Vec<UserId>>();
        let (large, small) = (ids(0, 3 * PIECE), ids(3 * PIECE, 3 * PIECE + 2));
        let search = |users| Search { users, devices: 0 };
        let mut searches = vec![search(&large[..]), search(&small[..])];
        let mut known = UserDevices::default();
        assert_eq!(known.next_piece(&mut searches, 10), large[..PIECE]);
        known.found.extend(large[..PIECE].iter().map(|user| (user.clone(), Vec::new())));
        assert_eq!(known.next_piece(&mut searches, 10), large[PIECE..2 * PIECE]);
        let devices: Vec<ClientId> = (0..11).map(|n| n.to_string().parse().unwrap()).collect();
        known.found.extend(large[PIECE..2 * PIECE].iter().map(|user| (user.clone(), Vec::new())));
        known.found.insert(large[PIECE].clone(), devices);
        assert_eq!(known.next_piece(&mut searches, 10), small, "those of the other push");
        known.found.extend(small.iter().map(|user| (user.clone(), Vec::new())));
        assert!(known.next_piece(&mut searches, 10).is_empty());

        let (mut wanted, limit) = (wanted(&[], &[]), 10);
        wanted.users = large.clone();
        let refused = known.add_to(&mut wanted, 1, &mut memory());
        assert_eq!(refused, Err(Rejection::TooManyUserDevices { limit }));
    }
}
