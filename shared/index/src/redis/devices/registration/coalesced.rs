//! Registrations of a few devices each, as phones make them at every start. Registrations that are
//! made at the same time are coalesced, and a device that is stored as it should be is only read.
//!
//! Groups are carried out by [`writer`](super::writer).
//!
//! Rules that keep the registrations of one group from affecting each other:
//! - Of two registrations of one client the one that was made later wins: groups run one after the
//!   other, and a group keeps the order in which its registrations were made. So a device that is
//!   stored as it should be is written all the same if a registration before it in the group
//!   changes that record.
//! - A shard that fails fails the registrations of its own devices, and no others. So a lookup that
//!   is refused decides nothing: the devices go to the scripts, each for its shard.
//! - A registration whose caller has gone before it is written is not written: the client may have
//!   removed the device since, and the write would bring it back.
//! - Codes are only valid for the connections on which they were read ([`dictionary`]), and these
//!   may break while a registration waits for its group. They are also valid for a limited time. If the
//!   connections are others after the lookup, or it is too late for the codes, the registration is given
//!   back to the caller, who makes it again with new codes.
//!
//! [`dictionary`]: crate::redis::dictionary

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use push_model::{
    app::AppKey,
    device::Device,
    profile::DeviceWrite,
    registration::{RegistrationEpoch, Stamp},
};
use push_store::{
    IndexError,
    coalescer::{Coalescer, CoalescerLimits},
    redis::{connection::Link, keys::Keys},
};

use super::{many::LATE, put::Registered, writer::Writer};
use crate::{
    Absent, PutRefused,
    redis::{
        Context, RedisIndex,
        devices::{
            profile::{ProfileCodes, Section},
            record::Codes,
        },
        dictionary::{
            CACHED_FOR, Coded, Connections, Dictionaries, Interned, WRITE_WITHIN, connections,
        },
    },
};

/// One group at a time, which keeps the registrations of different groups in order. It also makes
/// the groups as large as they can be, and a write costs less the more devices it has: with four
/// groups at once Redis took 5 to 40 % longer for a device that is new or changed.
const LIMITS: CoalescerLimits = CoalescerLimits { group_calls: 256, groups: 1 };

/// The longest list that is coalesced with others. A longer one fills calls by itself; it is not
/// ordered against coalesced registrations.
pub(in crate::redis::devices) const COALESCED_DEVICES: usize = 16;

/// The most tries of a registration whose connection breaks before it is written, or that comes too
/// late for its codes.
const TRIES: usize = 3;

/// Devices that one caller registers for an app.
#[derive(Debug)]
pub(in crate::redis) struct Registration {
    pub(super) app: AppKey,
    pub(super) devices: Vec<NewDevice>,
    pub(super) codes_from: CodesFrom,
    /// Cannot be upgraded once the caller has gone.
    pub(super) caller: Weak<Caller>,
}

/// A device that registers, in codes.
#[derive(Debug)]
pub(super) struct NewDevice {
    pub(super) device: Device,
    pub(super) codes: Codes,
    /// What it changes of its profile if it is registered.
    pub(super) coded: Coded,
    /// The profile that it gets if it is new, and the number of topics that it does not get then.
    pub(super) fresh: (ProfileCodes, usize),
    pub(super) stamp: Stamp,
    /// The registration that it must be, if it is written only while it is one.
    pub(super) only: Option<RegistrationEpoch>,
}

/// The state that the codes of a registration depend on.
#[derive(Debug, Clone)]
pub(super) struct CodesFrom {
    /// The connections before the codes were read.
    pub(super) read_on: Connections,
    pub(super) dictionaries: Arc<Dictionaries>,
    /// The time until which they may be written.
    pub(super) not_after: u64,
}

/// The answer to a caller beside the results: the clock, in seconds, of a server for which the
/// codes were too old; else 0.
pub(super) type Caller = AtomicU64;

/// The results of a [`Registration`]'s devices; none if the registration has to be made again with
/// new codes.
pub(super) type AllRegistered = Option<Vec<Registered>>;

/// Coalesces registrations of a few devices.
pub(in crate::redis) type Registrations =
    Coalescer<Registration, Result<AllRegistered, IndexError>>;

/// The coalescer of a program's registrations. None of their requests goes through `bulk`, but
/// their codes depend on its connection.
pub(in crate::redis) fn registrations(
    context: Context,
    keys: Keys,
    bulk: Arc<Link>,
) -> Registrations {
    let writer = Arc::new(Writer::new(context, keys, bulk));
    Coalescer::new(LIMITS, move |group| {
        let writer = Arc::clone(&writer);
        async move { writer.register_all(&group).await }
    })
}

impl RedisIndex {
    /// Registers a few devices, each with this stamp if it is new; one answer for each. With `only`, a device is written
    /// only while it is that registration.
    pub(in crate::redis::devices) async fn register_few(
        &self,
        app: &AppKey,
        devices: &[(DeviceWrite, Stamp)],
        only: Option<RegistrationEpoch>,
    ) -> Result<Vec<Registered>, IndexError> {
        let (caller, mut within) = (Arc::new(Caller::new(0)), CACHED_FOR);
        for _ in 0..TRIES {
            // Connected first, because cached dictionaries are only valid for the connections on
            // which they were read.
            self.quick.connect().await?;
            let read_on = connections(&self.quick, &self.bulk);
            let removed = || Ok(vec![Err(PutRefused::AppRemoved); devices.len()]);
            let attributes = devices.iter().map(|(write, _)| &write.device.attributes);
            let Some(interned) = self.intern(app, attributes, within).await? else {
                return removed();
            };
            let Interned { devices: codes, dictionaries, not_after } = interned;
            let changes = devices.iter().map(|(write, _)| &write.change);
            let Some(changes) = self.intern_changes(app, &dictionaries, changes).await? else {
                return removed();
            };
            // The clocks of two servers of a cluster may differ. The dictionaries were checked after a
            // server said its own.
            let clock = caller.load(Ordering::Relaxed);
            let not_after = not_after.max(clock.saturating_add(WRITE_WITHIN));
            let mut absent = Vec::with_capacity(devices.len());
            let all = devices.iter().zip(codes).zip(changes);
            let new = all.map(|(((write, stamp), (codes, attributes)), coded)| {
                absent.push(Absent { attributes, ..coded.absent.clone() });
                let fresh = coded.change.apply(Section::default());
                let (device, stamp) = (write.device.clone(), *stamp);
                NewDevice { device, codes, coded, fresh, stamp, only }
            });
            let registration = Registration {
                app: app.clone(),
                devices: new.collect(),
                codes_from: CodesFrom { read_on, dictionaries, not_after },
                caller: Arc::downgrade(&caller),
            };
            let registered = self.registrations.call(registration).await;
            let registered = registered.map_err(|error| IndexError::Unsure(Box::new(error)))??;
            if let Some(puts) = registered {
                let with_absent = |(registered, absent): (Registered, Absent)| {
                    registered.map(|(put, epoch)| {
                        // What the record decided.
                        let Absent { topics_beyond, user_id, .. } = put.absent();
                        (put.without(Absent { topics_beyond, user_id, ..absent }), epoch)
                    })
                };
                return Ok(puts.into_iter().zip(absent).map(with_absent).collect());
            }
            within = Duration::ZERO;
        }
        let why = match caller.load(Ordering::Relaxed) {
            0 => "its connections break one after the other",
            _ => LATE,
        };
        Err(IndexError::Unreachable(why.into()))
    }
}
