//! The stored facts of a device's registration besides the device itself.
//!
//! A device *registers* once, when it is new, and that time decides which broadcasts reach it. Every later
//! registration of it *renews* the first one. Removing the device and registering it again makes another
//! registration, with another [`RegistrationEpoch`].

use std::{fmt, time::Duration};

use crate::{
    device::{Carrier, TransportKind},
    gone::RemovedDevice,
    ids::ClientId,
    time::UnixMillis,
};

/// Tells a device from every later device of the same client id: a removal ends an epoch, and renewing or
/// changing a registration does not.
///
/// The time of registration in milliseconds, shifted left by six bits, and a serial number in the bits that this
/// frees. A program counts its serial numbers up from a random one. Two registrations of a client id share an
/// epoch only if they, and the removal between them, fall into one millisecond and their serial numbers happen to be
/// the same (1 in 64).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RegistrationEpoch(pub u64);

impl RegistrationEpoch {
    /// Returns the epoch of a device that registered at this time with this serial number. Fits into 48 bits: later
    /// times than the year 2109 count as its last moment.
    pub const fn new(registered_at: UnixMillis, serial: Serial) -> Self {
        const LAST: u64 = (1 << 42) - 1;
        let time = if registered_at.0 < LAST { registered_at.0 } else { LAST };
        Self(time << Serial::BITS | serial.0 as u64)
    }

    /// Returns the time of registration and the serial number.
    pub const fn parts(self) -> (UnixMillis, Serial) {
        (UnixMillis(self.0 >> Serial::BITS), Serial::of(self.0))
    }
}

impl fmt::Display for RegistrationEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl std::str::FromStr for RegistrationEpoch {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

/// Distinguishes registrations of one millisecond: the last bits of a [`RegistrationEpoch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Serial(u8);

impl Serial {
    const BITS: u32 = 6;

    /// Returns the serial number that the lowest six bits of a number are.
    pub const fn of(number: u64) -> Self {
        Self((number & ((1 << Self::BITS) - 1)) as u8)
    }

    /// Returns the number, which is below 64.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// When a device registered, and as which registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// When it registered first: a broadcast reaches only devices that registered before it was accepted.
    pub registered_at: UnixMillis,
    /// The second half of its [`RegistrationEpoch`].
    pub serial: Serial,
    /// When it registered last, if its transport [keeps that time](TransportKind::is_renewed); otherwise
    /// [`Stamp::registered_at`].
    pub renewed_at: UnixMillis,
}

impl Stamp {
    /// The stamp of a device that registers for the first time.
    pub const fn new(now: UnixMillis, serial: Serial) -> Self {
        Self { registered_at: now, serial, renewed_at: now }
    }

    /// The epoch of the registration.
    pub const fn epoch(self) -> RegistrationEpoch {
        RegistrationEpoch::new(self.registered_at, self.serial)
    }
}

/// A device that a transport's provider reported as gone.
#[derive(Clone, PartialEq, Eq)]
pub struct GoneDevice {
    /// The device.
    pub client_id: ClientId,
    /// The transport that reported it.
    pub transport: TransportKind,
    /// The token that the message was sent to.
    pub token: Option<Box<str>>,
    /// The time since which it is gone. For comparing times of two clocks, the difference that they
    /// may have is taken off.
    pub since: UnixMillis,
    /// The provider's code.
    pub code: &'static str,
}

impl GoneDevice {
    /// Returns true if the report is about the registration that is stored: the device has the same transport
    /// and token, and has not registered again since.
    pub fn is_of(
        &self,
        transport: TransportKind,
        token: Option<&str>,
        renewed_at: UnixMillis,
    ) -> bool {
        transport == self.transport && token == self.token.as_deref() && renewed_at < self.since
    }

    /// The device as it is listed if it is removed now.
    pub fn removed(&self, now: UnixMillis) -> RemovedDevice {
        let Self { client_id, transport, code, .. } = self;
        let (transport, code) = (*transport, (*code).into());
        RemovedDevice { removed_at: now, transport, code, client_id: client_id.clone() }
    }
}

/// The token is a secret.
impl fmt::Debug for GoneDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GoneDevice")
            .field("client_id", &self.client_id)
            .field("transport", &self.transport)
            .field("since", &self.since)
            .field("code", &self.code)
            .finish_non_exhaustive()
    }
}

/// A device's change of its carrier, as far as the partitions of broadcasts are concerned.
///
/// The partitions of a broadcast have one [carrier](Carrier) each and are read at different times, so a device that
/// changes its carrier meanwhile could be read twice or not at all. So each device is *in the partitions* of
/// one carrier, which [`partition_of`] says, and is reached at the address that it has when it is read.
/// For every broadcast that goes on, that answer stays the same whatever the device changes.
///
/// For that, one change is remembered, and a device is in the partitions of its new carrier only after a
/// change that finds none remembered ([`change_after`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CarrierChange {
    /// In whose partitions the device was before.
    pub from: Carrier,
    /// When it changed.
    pub at: UnixMillis,
    /// In whose partitions it is for broadcasts that were accepted later; never `from`. The device itself may have
    /// another carrier by now.
    pub to: Carrier,
}

/// The least time for which a change of carrier is remembered. It is forgotten with the first
/// registration after that, so a broadcast that is not finished after so long may reach such a
/// device twice, or not at all.
pub const CARRIER_CHANGE_KEPT: Duration = Duration::from_hours(31 * 24);

/// A change that follows another one within this time is joined with it, as if the device had changed to the last
/// carrier at the time of the first change.
pub const CARRIER_CHANGES_JOINED: Duration = Duration::from_secs(60);

/// The most by which clocks may be allowed to differ. A larger `--clock-allowance` is refused.
pub const MOST_CLOCK_ALLOWANCE: Duration = Duration::from_secs(30);

/// The longest time from when a registration takes its time to when the index has it.
const LONGEST_REGISTRATION: Duration = Duration::from_secs(60);

/// Time before the latest time of registration by which a device must have changed to be in the partition of its
/// new carrier.
///
/// Callers give times of registration that lie behind the acceptance of the broadcast by what clocks may differ.
/// A change that the index learns after the acceptance has a time that may be earlier by as much again, and by the
/// duration of a registration. It must not count as a change before the acceptance, or be joined with one.
const CHANGE_ALLOWANCE: Duration = Duration::from_secs(
    2 * MOST_CLOCK_ALLOWANCE.as_secs()
        + LONGEST_REGISTRATION.as_secs()
        + CARRIER_CHANGES_JOINED.as_secs(),
);

/// The carrier in whose partition of a broadcast a device is, if the broadcast reaches devices that registered
/// by `registered_by`.
pub fn partition_of(
    carrier: Carrier,
    change: Option<CarrierChange>,
    registered_by: UnixMillis,
) -> Carrier {
    match change {
        Some(change) if change.at > registered_by.minus(CHANGE_ALLOWANCE) => change.from,
        Some(change) => change.to,
        None => carrier,
    }
}

/// The change that is remembered of a device that registers again, with `carrier`.
///
/// While a change is remembered, a later one moves the device to no other partition: which one it was in before
/// the first would be forgotten, and a broadcast of that time might still need it. Two changes within
/// [`CARRIER_CHANGES_JOINED`] are joined, because no partition of a broadcast that comes between them is read
/// before the second.
pub fn change_after(
    before: Carrier,
    change: Option<CarrierChange>,
    carrier: Carrier,
    now: UnixMillis,
) -> Option<CarrierChange> {
    match change {
        Some(change) if now.since(change.at) <= CARRIER_CHANGE_KEPT => {
            let is_joined = carrier != before && now.since(change.at) <= CARRIER_CHANGES_JOINED;
            let to = if is_joined { carrier } else { change.to };
            (to != change.from).then_some(CarrierChange { to, ..change })
        }
        _ => {
            let from = change.map_or(before, |change| change.to);
            (carrier != from).then_some(CarrierChange { from, at: now, to: carrier })
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use TransportKind::{Fcm, Webhook};

    const MQTT: Carrier = Carrier::first(TransportKind::Mqtt);
    const FCM: Carrier = Carrier::first(Fcm);
    const WEBHOOK: Carrier = Carrier::first(Webhook);
    const ACCEPTED: UnixMillis = UnixMillis(1_800_000_000_000);

    fn at(seconds: i64) -> UnixMillis {
        UnixMillis(ACCEPTED.0.saturating_add_signed(seconds * 1000))
    }

    #[test]
    fn a_device_that_changes_its_carrier_is_in_one_partition_of_a_broadcast() {
        let moved = change_after(MQTT, None, FCM, at(1));
        assert_eq!(partition_of(FCM, moved, ACCEPTED), MQTT, "the one it was in before");
        assert_eq!(partition_of(FCM, moved, at(240)), FCM, "a later broadcast");
        let again = change_after(FCM, moved, WEBHOOK, at(600));
        assert_eq!(partition_of(WEBHOOK, again, ACCEPTED), MQTT);
        assert_eq!(partition_of(WEBHOOK, again, at(240)), FCM);
        let joined = change_after(FCM, moved, WEBHOOK, at(20));
        assert_eq!(partition_of(WEBHOOK, joined, ACCEPTED), MQTT);
        assert_eq!(partition_of(WEBHOOK, joined, at(240)), WEBHOOK);
        assert_eq!(change_after(FCM, moved, MQTT, at(20)), None, "as if it had never changed");
    }

    #[test]
    fn a_change_after_the_acceptance_never_seems_earlier_by_clocks_that_differ_as_much_as_they_may()
    {
        let allowance = MOST_CLOCK_ALLOWANCE.as_secs() as i64;
        // The broadcast was accepted by the right clock, and the change was stored by one that is late.
        let change = change_after(MQTT, None, FCM, UnixMillis(at(-allowance).0 + 1));
        assert_eq!(partition_of(FCM, change, at(allowance)), MQTT);
    }

    #[test]
    fn a_change_is_forgotten_when_no_broadcast_needs_it_any_more() {
        let moved = change_after(MQTT, None, WEBHOOK, at(0));
        let (soon, later) = (at(30 * 24 * 3600), at(32 * 24 * 3600));
        assert_eq!(change_after(WEBHOOK, moved, WEBHOOK, soon), moved);
        assert_eq!(change_after(WEBHOOK, moved, WEBHOOK, later), None);
        let again = change_after(WEBHOOK, moved, FCM, soon);
        let caught_up = Some(CarrierChange { from: WEBHOOK, at: later, to: FCM });
        assert_eq!(change_after(FCM, again, FCM, later), caught_up);
    }

    /// A clock of the tests that is ahead or behind by up to half of what clocks may differ.
    fn by_clock(real: u64, skew: i64) -> UnixMillis {
        UnixMillis(ACCEPTED.0.saturating_add(real).saturating_add_signed(skew))
    }

    proptest! {
        /// The times are real ones, in milliseconds, and each program has a clock of its own.
        #[test]
        fn every_device_is_in_exactly_one_partition_whatever_it_changes_and_whenever_each_is_read(
            first in a_carrier(),
            changes in prop::collection::vec((a_carrier(), a_pause(), a_skew(), 0..60_000_u64), 0..12),
            (accepted, accepted_skew, allowance) in (0..900_000_u64, a_skew(), 1..=30_000_u64),
            reads in prop::collection::vec(0..1_200_000_u64, Carrier::COUNT),
        ) {
            let skewed = |skew: i64| skew * i64::try_from(allowance).unwrap() / 60_000;
            let by = by_clock(accepted, skewed(accepted_skew)).plus(Duration::from_millis(allowance));
            let (mut history, mut takes_effect) = (vec![(0, first, None)], 0);
            for (carrier, pause, skew, delay) in changes {
                let &(_, before, change) = history.last().unwrap();
                let now = by_clock(takes_effect + pause, skewed(skew));
                takes_effect += pause + delay;
                history.push((takes_effect, carrier, change_after(before, change, carrier, now)));
            }
            let partitions = Carrier::ALL.into_iter().zip(reads).filter(|(carrier, read)| {
                let read_at = accepted + read;
                let seen = history.iter().rev().find(|(since, ..)| *since <= read_at).unwrap();
                partition_of(seen.1, seen.2, by) == *carrier
            });
            prop_assert_eq!(partitions.count(), 1);
        }
    }

    fn a_carrier() -> impl Strategy<Value = Carrier> {
        prop::sample::select(&Carrier::ALL[3..6])
    }

    /// Between two registrations of a device.
    fn a_pause() -> impl Strategy<Value = u64> {
        prop_oneof![0..2_000_u64, 0..90_000_u64, 0..400_000_u64]
    }

    /// In parts of 30,000 of half the allowance.
    fn a_skew() -> impl Strategy<Value = i64> {
        -30_000..=30_000_i64
    }

    #[test]
    fn a_report_is_about_one_token_and_the_time_before_it_was_registered_again() {
        let gone = GoneDevice {
            client_id: "c".parse().unwrap(),
            transport: Fcm,
            token: Some("secret".into()),
            since: at(0),
            code: "UNREGISTERED",
        };
        assert!(gone.is_of(Fcm, Some("secret"), at(-1)));
        assert!(!gone.is_of(Fcm, Some("secret"), at(0)));
        assert!(!gone.is_of(Fcm, Some("new"), at(-1)));
        assert!(!gone.is_of(Fcm, None, at(-1)));
        assert!(!gone.is_of(Webhook, Some("secret"), at(-1)));
        assert!(!format!("{gone:?}").contains("secret"), "no token is shown");
    }

    #[test]
    fn an_epoch_is_read_as_it_is_written() {
        let epoch = RegistrationEpoch::new(ACCEPTED, Serial::of(63));
        assert_eq!(epoch.to_string().parse(), Ok(epoch));
        assert_eq!(epoch.parts(), (ACCEPTED, Serial::of(63)));
        assert_ne!(epoch, RegistrationEpoch::new(UnixMillis(ACCEPTED.0 + 1), Serial::of(63)));
        assert_ne!(epoch, RegistrationEpoch::new(ACCEPTED, Serial::of(0)));
    }
}
