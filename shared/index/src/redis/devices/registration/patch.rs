//! Changing the profiles of registered devices.
//!
//! A device is read, changed and written back if its record is still the one that was read; otherwise again. The scripts
//! that write may take Redis long, so they have the connection of long lists: registrations and the reads of pushes do not
//! wait for them.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures::future::join;
use push_model::{
    app::AppKey,
    custom::MAX_CUSTOM_ATTRIBUTES,
    ids::ClientId,
    profile::{ProfileChange, UserChange},
};
use push_store::IndexError;

use super::{
    many::LATE,
    put::PutFailure,
    rewrite::{Rewrite, rewrite},
    writer::{IDLE_ROUNDS, changed_all_the_time, declared_ids, pause},
};
use crate::{
    Absent, PatchRefused,
    redis::{
        Context, RedisIndex,
        devices::{
            find::{FoundDevice, find},
            profile::ProfileCodes,
        },
        dictionary::{CACHED_FOR, Coded, Moment, WRITE_WITHIN, connections},
        layout::ClientHash,
        users::Pair,
    },
};

/// The most devices that are read and written at a time.
const PIECE: usize = 256;

/// A change of a device that was found.
struct Found {
    place: usize,
    /// What is stored, encoded, and how it is written.
    slot: u32,
    record: Vec<u8>,
    user: Box<str>,
    after: ProfileCodes,
    keeps_profile: bool,
    absent: Absent,
}

type Patched = Result<Absent, PatchRefused>;

impl RedisIndex {
    /// Changes the profiles of devices, one answer for each change. Several changes of one device are made one after the
    /// other.
    pub(in crate::redis::devices) async fn patch(
        &self,
        app: &AppKey,
        changes: &[(ClientId, ProfileChange)],
    ) -> Result<Vec<Patched>, IndexError> {
        let mut answers = Vec::with_capacity(changes.len());
        for piece in changes.chunks(PIECE) {
            answers.extend(self.patch_piece(app, piece).await?);
        }
        Ok(answers)
    }

    async fn patch_piece(
        &self,
        app: &AppKey,
        changes: &[(ClientId, ProfileChange)],
    ) -> Result<Vec<Patched>, IndexError> {
        let mut answers: Vec<Option<Patched>> = vec![None; changes.len()];
        let (mut within, mut clock, mut tries, mut is_late) = (CACHED_FOR, 0, 0, false);
        loop {
            // Of several changes of one device only the first that has no answer.
            let mut clients = HashSet::new();
            let open =
                answers.iter().zip(changes).zip(0..).filter(|((answer, _), _)| answer.is_none());
            let open: Vec<usize> = open
                .filter(|((_, (client, _)), _)| clients.insert(client))
                .map(|(_, place)| place)
                .collect();
            if open.is_empty() {
                return Ok(answers.into_iter().flatten().collect());
            }
            if tries == IDLE_ROUNDS {
                let late = IndexError::Unreachable(LATE.into());
                return Err(if is_late { late } else { changed_all_the_time() });
            }
            pause(tries).await;
            let of = |place: &usize| changes.get(*place);
            let named: Vec<_> = open.iter().filter_map(of).collect();
            self.quick.connect().await?;
            self.bulk.connect().await?;
            let read_on = connections(&self.quick, &self.bulk);
            let dictionaries = self.dictionaries_within(app, within).await?;
            let not_after = dictionaries.last_check().clock.max(clock) + WRITE_WITHIN;
            let wanted = named.iter().map(|(_, change)| change);
            let Some(coded) = self.intern_changes(app, &dictionaries, wanted).await? else {
                return Ok(vec![Err(PatchRefused::Unknown); changes.len()]);
            };
            let looked_up = Moment::now();
            let clients: Vec<ClientId> = named.iter().map(|(client, _)| client.clone()).collect();
            let (found, missing) = self.find_to_patch(app, &open, &clients, &coded).await?;
            if connections(&self.quick, &self.bulk) != read_on
                || dictionaries.decided_in_time(looked_up).is_err()
            {
                (tries, within) = (tries + 1, Duration::ZERO);
                continue;
            }
            for (place, refused) in missing {
                if let Some(answer) = answers.get_mut(place) {
                    *answer = Some(Err(refused));
                }
            }
            let before = answers.iter().flatten().count();
            is_late = self
                .write_patched(app, changes, found, not_after, &mut answers, &mut clock)
                .await?;
            within = if is_late { Duration::ZERO } else { CACHED_FOR };
            tries = if answers.iter().flatten().count() > before { 0 } else { tries + 1 };
        }
    }

    /// Reads devices, and applies a change to each; and those that cannot be changed.
    async fn find_to_patch(
        &self,
        app: &AppKey,
        places: &[usize],
        clients: &[ClientId],
        coded: &[Coded],
    ) -> Result<(Vec<Found>, Vec<(usize, PatchRefused)>), IndexError> {
        let mut states: Vec<Result<Found, PatchRefused>> =
            places.iter().map(|_| Err(PatchRefused::Unknown)).collect();
        find(&self.context, &self.keys, app, clients, |index, found| {
            let (Some(state), Some(place), Some(coded)) =
                (states.get_mut(index), places.get(index), coded.get(index))
            else {
                return Ok(());
            };
            match found {
                Ok(FoundDevice { slot, record }) => {
                    let (after, topics_beyond) = coded.change.apply(record.profile);
                    let mut bytes = Vec::new();
                    record.encode(&mut bytes)?;
                    *state = Ok(Found {
                        place: *place,
                        slot,
                        record: bytes,
                        user: record.profile.user().into(),
                        keeps_profile: after.section() == record.profile,
                        after,
                        absent: Absent { topics_beyond, ..coded.absent.clone() },
                    });
                }
                Err(IndexError::Corrupt(_)) if state.is_err() => {
                    *state = Err(PatchRefused::Unreadable);
                }
                Err(IndexError::Corrupt(_)) => {}
                Err(error) => return Err(error),
            }
            Ok(())
        })
        .await?;
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for (state, place) in states.into_iter().zip(places) {
            match state {
                Ok(device) => found.push(device),
                Err(refused) => missing.push((*place, refused)),
            }
        }
        Ok((found, missing))
    }

    /// Writes changed devices, and answers for those that were written. True if it was too late for some of their codes; then
    /// `clock` is the server's.
    async fn write_patched(
        &self,
        app: &AppKey,
        changes: &[(ClientId, ProfileChange)],
        mut found: Vec<Found>,
        not_after: u64,
        answers: &mut [Option<Patched>],
        clock: &mut u64,
    ) -> Result<bool, IndexError> {
        let client_of = |device: &Found| changes.get(device.place).map(|(client, _)| client);
        for device in found.iter_mut().filter(|d| d.after.custom_len() > MAX_CUSTOM_ATTRIBUTES) {
            let declared = declared_ids(&self.context, &self.keys, app).await;
            device.after.retain_declared(declared.as_deref());
        }
        let (mut pairs, mut places): (Vec<Pair<'_>>, Vec<usize>) = (Vec::new(), Vec::new());
        // Users that are named again, whose lists may have lost the device.
        let mut kept: Vec<Pair<'_>> = Vec::new();
        for (place, device) in found.iter().enumerate() {
            let user = device.after.section().user();
            let Some((client, change)) = changes.get(device.place).filter(|_| !user.is_empty())
            else {
                continue;
            };
            if *user != *device.user {
                pairs.push((user, client));
                places.push(place);
            } else if change.user_id != UserChange::Keep {
                kept.push((user, client));
            }
        }
        let users = self.users(app);
        let (added, checked) = join(users.add(&pairs), users.check(&kept)).await;
        checked.into_iter().collect::<Result<Vec<_>, _>>()?;
        let refused: Vec<usize> = places
            .into_iter()
            .zip(added)
            .filter_map(|(place, added)| match added {
                Ok(true) => None,
                Ok(false) => Some(Ok(place)),
                Err(error) => Some(Err(error)),
            })
            .collect::<Result<_, _>>()?;
        for place in refused {
            if let Some(device) = found.get_mut(place) {
                device.after = std::mem::take(&mut device.after).without_user();
                device.absent.user_id = true;
            }
        }
        let mut answer = |device: &Found| {
            if let Some(answer) = answers.get_mut(device.place) {
                *answer = Some(Ok(device.absent.clone()));
            }
        };
        let mut written = Vec::new();
        for device in found {
            if device.keeps_profile {
                answer(&device);
            } else if let Some(client) = client_of(&device) {
                written.push((ClientHash::of(client).shard, device));
            }
        }
        written.sort_by_key(|(shard, _)| *shard);
        let encode = |(shard, device): &(u32, Found)| {
            let record =
                super::super::record::records(&device.record).next().transpose()?.flatten();
            let record = record.ok_or_else(|| IndexError::Corrupt("a device record".to_owned()))?;
            let after = record.with_profile(device.after.section());
            Rewrite::of_profile((*shard, device.slot), &record, &after, not_after)
        };
        let rewrites: Vec<Rewrite> = written.iter().map(encode).collect::<Result<_, _>>()?;
        let context = Context { link: Arc::clone(&self.bulk), ..self.context.clone() };
        let results = rewrite(&context, &self.keys, app, &rewrites).await;
        let (mut former, mut is_late): (Vec<Pair<'_>>, bool) = (Vec::new(), false);
        for ((_, device), result) in written.iter().zip(results) {
            match result {
                Ok(true) => {
                    answer(device);
                    if !device.user.is_empty() && *device.user != *device.after.section().user() {
                        former.extend(client_of(device).map(|client| (&*device.user, client)));
                    }
                }
                Ok(false) => {}
                Err(PutFailure::Late(now)) => (is_late, *clock) = (true, (*clock).max(now)),
                Err(PutFailure::Failed(error)) => return Err(error),
            }
        }
        if !former.is_empty() {
            users.drop(&former).await;
        }
        Ok(is_late)
    }
}
