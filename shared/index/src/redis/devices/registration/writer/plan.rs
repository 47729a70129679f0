//! Deciding how the devices of a round are written.

use std::collections::HashSet;

use push_model::{ids::ClientId, registration::RegistrationEpoch};
use push_store::IndexError;

use super::{Round, StoredDevice};
use crate::{Absent, Put, PutRefused, redis::devices::registration::put::PendingDevice};

/// The stored state of a device before it registers.
pub(super) enum StoredState {
    /// The same as the registration.
    Same(StoredSame),
    /// A record that differs.
    Different(Box<StoredDevice>),
    /// No record, or none that can be read.
    Unknown,
}

impl StoredState {
    /// The registration that is stored.
    fn epoch(&self) -> Option<RegistrationEpoch> {
        match self {
            Self::Same(same) => Some(same.epoch),
            Self::Different(stored) => Some(stored.epoch()),
            Self::Unknown => None,
        }
    }
}

/// A device that is stored as it registers.
pub(super) struct StoredSame {
    pub(super) epoch: RegistrationEpoch,
    pub(super) has_profile: bool,
    /// Its user; empty if there is none.
    pub(super) user: Box<str>,
    /// The number of topics that it does not get.
    pub(super) beyond: usize,
}

/// A device of a round, and what is stored of it.
pub(super) type Looked<'a> = (PendingDevice<'a>, Result<StoredState, IndexError>);

/// The devices of a round, by how they are written.
#[derive(Default)]
pub(super) struct Plan<'a> {
    pub(super) changes: Vec<(PendingDevice<'a>, StoredDevice)>,
    pub(super) rewrites: Vec<(PendingDevice<'a>, StoredDevice)>,
    pub(super) puts: Vec<PendingDevice<'a>>,
    /// Users of devices that keep them.
    pub(super) kept: Vec<(Box<str>, &'a ClientId, usize)>,
    /// Devices whose users have as many devices as they may have.
    pub(super) without_user: HashSet<usize>,
}

/// Decides how devices are written, which are sorted.
pub(super) fn plan<'a>(
    looked: Vec<Looked<'a>>,
    may_be_written: impl Fn(&PendingDevice<'_>) -> bool,
    round: &mut Round<'a>,
) -> Plan<'a> {
    let later = later_rounds(&looked);
    let (mut plan, mut written) = (Plan::default(), None);
    let mut looked = looked.into_iter().peekable();
    while let Some((device, stored)) = looked.next() {
        let (number, hash) = (device.number, Some(device.hash));
        if later.contains(&number) {
            round.again.push(device);
            continue;
        }
        let is_last = looked.peek().map(|(next, _)| next.hash) != hash;
        let outcome = match stored {
            Err(error) => Err(error),
            Ok(_) if !may_be_written(&device) => Ok(None),
            Ok(state) if device.only.is_some_and(|only| state.epoch() != Some(only)) => {
                Ok(Some(Err(PutRefused::NotRegistered)))
            }
            Ok(StoredState::Same(StoredSame { epoch, user, beyond, .. })) if written != hash => {
                if !user.is_empty() {
                    plan.kept.push((user, &device.device.client_id, number));
                }
                Ok(Some(Ok((Put::Updated.without(absent(beyond, false)), epoch))))
            }
            // What is written only where a record is never goes to the script of the shard.
            Ok(StoredState::Different(stored)) if stored.has_profile() || device.only.is_some() => {
                if !stored.user.is_empty() && *stored.user == *stored.after.section().user() {
                    plan.kept.push((stored.user.clone(), &device.device.client_id, number));
                }
                if stored.keeps_profile
                    && stored.keeps_carrier(&device)
                    && stored.keeps_high_bytes(&device)
                {
                    plan.changes.push((device, *stored));
                } else {
                    plan.rewrites.push((device, *stored));
                }
                continue;
            }
            Ok(StoredState::Different(stored))
                if written != hash && is_last && stored.keeps_carrier(&device) =>
            {
                plan.changes.push((device, *stored));
                continue;
            }
            Ok(_) => {
                written = hash;
                plan.puts.push(device);
                continue;
            }
        };
        round.outcomes.push((number, outcome));
    }
    plan
}

/// The numbers of those devices that have to wait for another registration of the same client, because what they write
/// depends on what that one leaves.
fn later_rounds(looked: &[Looked<'_>]) -> HashSet<usize> {
    let depends = |(device, stored): &Looked<'_>| {
        device.only.is_some()
            || match stored {
                Ok(StoredState::Different(stored)) => stored.has_profile(),
                Ok(StoredState::Same(same)) => same.has_profile,
                Ok(StoredState::Unknown) | Err(_) => !device.profile.is_empty(),
            }
    };
    let clients = looked.chunk_by(|(a, _), (b, _)| a.hash == b.hash);
    let several = clients.filter(|same| same.len() > 1 && same.iter().any(depends));
    several.flat_map(|same| same.iter().skip(1).map(|(device, _)| device.number)).collect()
}

pub(super) fn absent(topics_beyond: usize, user_id: bool) -> Absent {
    Absent { topics_beyond, user_id, ..Absent::default() }
}
