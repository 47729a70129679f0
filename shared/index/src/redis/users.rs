//! The devices of users.
//!
//! A user has a list of devices that may be his, in a hash of users with the same hash value. A device is added before its
//! record names the user, and taken away after its record names him no more. So a device on the list is a candidate, and its
//! record decides. What was added less than a minute ago is never taken away, because the registration that added it may
//! be under way. A device that is not on the list although its record names the user, because a fail-over lost the last
//! writes, is added again with its next registration: even if the user got other devices meanwhile and thus has more
//! than he may have, because all of them get what is sent to him and are removed with him.
//!
//! The lists of a removed app refuse devices for [`REMOVED_APP_REFUSES`], as its shards do.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use async_trait::async_trait;
use futures::{StreamExt as _, future, stream};
use push_model::{
    app::AppKey,
    filter::Column,
    ids::{ClientId, Topic, UserId},
    profile::MAX_USER_DEVICES,
};
use push_store::{
    IndexError,
    redis::{connection::reply, keys::Keys},
};

use super::{
    Context, RedisIndex,
    devices::find,
    layout::{TIME_LEN, USER_HASHES, user_hash},
};
use crate::{REMOVED_APP_REFUSES, Users};

/// Pairs of a user and a device in one script call.
const CALL_PAIRS: usize = 128;

/// Script calls that are in flight at the same time.
const IN_FLIGHT: usize = 32;

/// For how long a device stays on the list of a user whom its record does not name, in milliseconds: longer than a
/// registration may take.
const UNDER_WAY: u64 = 60_000;

/// The most devices on the list of a user: his own, those that were his or are to be his within the last minute, and those
/// that a fail-over took off the list.
const MOST_LISTED: usize = 2 * MAX_USER_DEVICES;

/// A user and a device.
pub(super) type Pair<'a> = (&'a str, &'a ClientId);

/// The users of one app.
#[derive(Clone, Copy)]
pub(super) struct AppUsers<'a> {
    pub(super) context: &'a Context,
    pub(super) keys: &'a Keys,
    pub(super) app: &'a AppKey,
}

impl AppUsers<'_> {
    /// Adds devices to users, before their records name them: for each pair false if the user has as many devices as he
    /// may have.
    pub(super) async fn add(&self, pairs: &[Pair<'_>]) -> Vec<Result<bool, IndexError>> {
        self.add_or_check(pairs, true).await
    }

    /// Adds devices whose records name these users, if they are not there: for each pair false if there is no room,
    /// however many of the listed devices are the user's.
    pub(super) async fn check(&self, pairs: &[Pair<'_>]) -> Vec<Result<bool, IndexError>> {
        self.add_or_check(pairs, false).await
    }

    async fn add_or_check(
        &self,
        pairs: &[Pair<'_>],
        renews: bool,
    ) -> Vec<Result<bool, IndexError>> {
        // A device that is his already is not counted: the list follows the record.
        let most = if renews { MAX_USER_DEVICES } else { MOST_LISTED };
        let mut added = self.call_add(pairs, renews, most).await;
        let refused: Vec<usize> =
            (0..pairs.len()).filter(|place| matches!(added.get(*place), Some(Ok(false)))).collect();
        if refused.is_empty() {
            return added;
        }
        // Devices that are no longer his may be on the list: looking takes them away, but for those that were added a
        // moment ago. So what counts is how many are his.
        let mut full: Vec<&str> =
            refused.iter().filter_map(|place| pairs.get(*place)).map(|(user, _)| *user).collect();
        full.sort_unstable();
        full.dedup();
        let full: Vec<UserId> = full.into_iter().filter_map(|user| user.parse().ok()).collect();
        let devices = match self.devices_of(&full).await {
            Ok(devices) => devices,
            Err(error) => {
                for place in refused {
                    if let Some(one) = added.get_mut(place) {
                        *one = Err(error.duplicate());
                    }
                }
                return added;
            }
        };
        let has_room = |user: &str| {
            let mut users = full.iter().zip(&devices);
            users.any(|(of, devices)| of.as_str() == user && devices.len() < most)
        };
        let again: Vec<usize> = refused
            .into_iter()
            .filter(|place| pairs.get(*place).is_some_and(|(user, _)| has_room(user)))
            .collect();
        let pairs: Vec<Pair<'_>> = again.iter().filter_map(|at| pairs.get(*at)).copied().collect();
        let answers = self.call_add(&pairs, renews, MOST_LISTED).await;
        for (place, answer) in again.into_iter().zip(answers) {
            if let Some(one) = added.get_mut(place) {
                *one = answer;
            }
        }
        added
    }

    async fn call_add(
        &self,
        pairs: &[Pair<'_>],
        renews: bool,
        most: usize,
    ) -> Vec<Result<bool, IndexError>> {
        let calls = by_hash(pairs).into_iter().map(async |(hash, places)| {
            let key = self.keys.users(self.app, hash);
            let mut call = self.context.scripts.add_users.call(&[&key]);
            call.arg(most).arg(u8::from(renews));
            for (user, client) in places.iter().filter_map(|place| pairs.get(*place)) {
                call.arg(*user).arg(client.as_str());
            }
            let letters = call.run(&self.context.link).await.and_then(reply::bytes);
            (places, letters)
        });
        let mut answers: Vec<_> = pairs.iter().map(|_| Ok(true)).collect();
        let mut calls = stream::iter(calls).buffer_unordered(IN_FLIGHT);
        while let Some((places, letters)) = calls.next().await {
            for (number, place) in places.into_iter().enumerate() {
                let Some(answer) = answers.get_mut(place) else { continue };
                *answer = match &letters {
                    // The shards of a removed app refuse the devices.
                    Ok(letters) => {
                        let letter = letters.as_ref().and_then(|letters| letters.get(number));
                        Ok(matches!(letter, Some(b'o' | b'g')))
                    }
                    Err(error) => Err(error.duplicate()),
                };
            }
        }
        answers
    }

    /// Takes devices away from users whom their records do not name any more. A device that stays, because the index does
    /// not answer or because it was added a moment ago, is no device of the user all the same.
    pub(super) async fn drop(&self, pairs: &[Pair<'_>]) {
        let calls = by_hash(pairs).into_iter().map(async |(hash, places)| {
            let key = self.keys.users(self.app, hash);
            let mut call = self.context.scripts.drop_users.call(&[&key]);
            call.arg(UNDER_WAY);
            for (user, client) in places.iter().filter_map(|place| pairs.get(*place)) {
                call.arg(*user).arg(client.as_str());
            }
            call.run(&self.context.link).await.is_ok()
        });
        stream::iter(calls).buffer_unordered(IN_FLIGHT).for_each(|_| future::ready(())).await;
    }

    /// The devices whose records name these users. The others that are on their lists are taken away.
    pub(super) async fn devices_of(
        &self,
        users: &[UserId],
    ) -> Result<Vec<Vec<ClientId>>, IndexError> {
        let (mut of, mut clients) = (Vec::new(), Vec::new());
        for (place, client) in self.candidates(users).await? {
            of.push(place);
            clients.push(client);
        }
        let mut devices: Vec<Vec<ClientId>> = vec![Vec::new(); users.len()];
        let mut is_stale = vec![true; clients.len()];
        find(self.context, self.keys, self.app, &clients, |index, found| {
            let (Some(place), Some(is_stale)) = (of.get(index), is_stale.get_mut(index)) else {
                return Ok(());
            };
            let user = users.get(*place).map(UserId::as_str);
            match found {
                Ok(found) if Some(found.record.profile.user()) == user => {
                    *is_stale = false;
                    devices.get_mut(*place).into_iter().for_each(|of_user: &mut Vec<_>| {
                        of_user.extend(clients.get(index).cloned());
                    });
                }
                Ok(_) => {}
                // It cannot be read, and another one may be the client's.
                Err(IndexError::Corrupt(_)) => *is_stale = false,
                Err(error) => return Err(error),
            }
            Ok(())
        })
        .await?;
        let stale = of.iter().zip(&clients).zip(is_stale).filter(|(_, is_stale)| *is_stale);
        let stale: Vec<Pair<'_>> = stale
            .filter_map(|((place, client), _)| Some((users.get(*place)?.as_str(), client)))
            .collect();
        self.drop(&stale).await;
        for of_user in &mut devices {
            of_user.sort_unstable();
            of_user.dedup();
        }
        Ok(devices)
    }

    /// The devices on the lists of these users, each with its user's place.
    async fn candidates(&self, users: &[UserId]) -> Result<Vec<(usize, ClientId)>, IndexError> {
        let mut by_hash: BTreeMap<u8, Vec<usize>> = BTreeMap::new();
        for (place, user) in users.iter().enumerate() {
            by_hash.entry(user_hash(user.as_str())).or_default().push(place);
        }
        let reads = by_hash.into_iter().map(async |(hash, places)| {
            let mut get = redis::cmd("HMGET");
            get.arg(self.keys.users(self.app, hash));
            for user in places.iter().filter_map(|place| users.get(*place)) {
                get.arg(user.as_str());
            }
            let lists = reply::list(self.context.link.read(&get).await?)?;
            let mut found = Vec::new();
            for (place, list) in places.into_iter().zip(lists) {
                let list = reply::bytes(list)?.unwrap_or_default();
                found.extend(listed(&list).map(|client| (place, client)));
            }
            Ok::<_, IndexError>(found)
        });
        let mut reads = stream::iter(reads).buffer_unordered(IN_FLIGHT);
        let mut candidates = Vec::new();
        while let Some(found) = reads.next().await {
            candidates.extend(found?);
        }
        Ok(candidates)
    }
}

/// The places of pairs whose users have the same hash, cut into calls.
fn by_hash(pairs: &[Pair<'_>]) -> Vec<(u8, Vec<usize>)> {
    let mut places: Vec<(u8, usize)> =
        pairs.iter().map(|(user, _)| user_hash(user)).zip(0..).collect();
    places.sort_unstable();
    let calls = places.chunk_by(|(a, _), (b, _)| a == b).flat_map(|same| same.chunks(CALL_PAIRS));
    calls
        .filter_map(|call| Some((call.first()?.0, call.iter().map(|(_, place)| *place).collect())))
        .collect()
}

/// The client ids of a list: behind the time and the length of each. What cannot be read ends the list.
fn listed(mut list: &[u8]) -> impl Iterator<Item = ClientId> {
    std::iter::from_fn(move || {
        let (_, rest) = list.split_at_checked(TIME_LEN)?;
        let (len, rest) = rest.split_first()?;
        let (client, rest) = rest.split_at_checked(usize::from(*len))?;
        list = rest;
        std::str::from_utf8(client).ok()?.parse().ok()
    })
}

impl RedisIndex {
    /// The users of an app.
    pub(super) fn users<'a>(&'a self, app: &'a AppKey) -> AppUsers<'a> {
        AppUsers { context: &self.context, keys: &self.keys, app }
    }

    /// Forgets the users of an app that was removed, and refuses others from now on.
    pub(super) async fn remove_users(&self, app: &AppKey) -> Result<(), IndexError> {
        let keys = (0..USER_HASHES).filter_map(|hash| u8::try_from(hash).ok());
        let removals = keys.map(|hash| self.keys.users(app, hash)).map(async |key| {
            let mut remove = self.scripts.remove_users.call(&[&key]);
            remove.arg(REMOVED_APP_REFUSES.as_secs()).run(&self.bulk).await
        });
        let mut removals = stream::iter(removals).buffer_unordered(IN_FLIGHT);
        while let Some(removed) = removals.next().await {
            removed?;
        }
        Ok(())
    }
}

#[async_trait]
impl Users for RedisIndex {
    async fn user_devices(
        &self,
        app: &AppKey,
        users: &[UserId],
    ) -> Result<Vec<Vec<ClientId>>, IndexError> {
        self.users(app).devices_of(users).await
    }

    async fn unknown_topics(
        &self,
        app: &AppKey,
        topics: &[Topic],
    ) -> Result<Vec<Topic>, IndexError> {
        let known = self.dictionaries(app).await?;
        self.load(app, &known, [Column::Topic]).await?;
        let unknown = || {
            let is_unknown = |topic: &&Topic| {
                known.with(Column::Topic, |known| known.usable_code(topic.as_str()).is_none())
            };
            topics.iter().filter(is_unknown).cloned().collect::<Vec<_>>()
        };
        if unknown().is_empty() {
            return Ok(Vec::new());
        }
        // Another program may have added it since.
        self.read_rest(app, &known, [Column::Topic]).await?;
        Ok(unknown())
    }

    async fn remove_device_of(
        &self,
        app: &AppKey,
        user: &UserId,
        client: &ClientId,
    ) -> Result<bool, IndexError> {
        self.remove_of_user(app, user, client).await
    }

    fn limit_topics(&self, most: usize) {
        self.most_topics.store(most, Ordering::Relaxed);
    }
}
