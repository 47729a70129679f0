//! What is stored of a device's registration besides the device itself.
//!
//! A device *registers* once, when it is new, and that time decides which broadcasts reach it. Every later
//! registration of it *renews* the first one. Removing the device and registering it again makes another
//! registration, with another [`RegistrationEpoch`].

use std::{fmt, time::Duration};

use crate::{device::TransportKind, ids::ClientId, time::UnixMillis};

/// Tells a device from every later device of the same client id: a removal ends an epoch, and renewing or
/// changing a registration does not.
///
/// The first half is the low half of the time of registration, the other half a serial number that a program
/// never uses twice in a row of 2^32 registrations and that begins at a random number. So two registrations of
/// a client id share an epoch only if two programs made them in the same millisecond and, by a chance of 2^-32,
/// with the same serial number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RegistrationEpoch(pub u64);

impl RegistrationEpoch {
    /// The epoch of a device that registered at this time with this serial number.
    pub const fn new(registered_at: UnixMillis, serial: u32) -> Self {
        Self(registered_at.0 << 32 | serial as u64)
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

/// When a device registered, and as which registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// When it registered first: a broadcast reaches only devices that registered before it was accepted.
    pub registered_at: UnixMillis,
    /// The second half of its [`RegistrationEpoch`].
    pub serial: u32,
    /// When it registered last, if its transport [keeps that time](TransportKind::is_renewed); otherwise
    /// [`Stamp::registered_at`].
    pub renewed_at: UnixMillis,
}

impl Stamp {
    /// The stamp of a device that registers for the first time.
    pub const fn new(now: UnixMillis, serial: u32) -> Self {
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
    /// Since when it is gone. Who compares times of two clocks takes off what they may differ.
    pub since: UnixMillis,
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
}

/// The token is a secret.
impl fmt::Debug for GoneDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GoneDevice")
            .field("client_id", &self.client_id)
            .field("transport", &self.transport)
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}

/// A device's last change of its transport.
///
/// The partitions of a broadcast have one transport each and are read at different times, so a device that
/// changes its transport meanwhile could be read twice or not at all. So a device belongs to the partition of
/// the transport that it had when the broadcast was accepted ([`partition_of`]), and is reached through the
/// transport that it has when it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransportChange {
    /// The transport before.
    pub from: TransportKind,
    /// When the device changed to its present transport.
    pub at: UnixMillis,
    /// When the device changed to the transport before; 0 if it registered with it.
    pub from_since: UnixMillis,
}

/// How long a change of transport is remembered at least. It is forgotten with the first registration after
/// that, so a broadcast that is not finished after so long may reach such a device twice.
pub const TRANSPORT_CHANGE_KEPT: Duration = Duration::from_hours(31 * 24);

/// The most that the clocks of machines may be allowed to differ.
pub const MAX_CLOCK_ALLOWANCE: Duration = Duration::from_secs(30);

/// How much earlier than the latest time of registration a device must have had its transport to belong to the
/// partition of it. Callers give times of registration that lie behind the acceptance of the broadcast by what
/// clocks may differ; a change that happens after the acceptance must never seem earlier than it, by a clock that
/// is late by as much.
const CHANGE_ALLOWANCE: Duration = Duration::from_secs(2 * MAX_CLOCK_ALLOWANCE.as_secs());

/// The transport in whose partition of a broadcast a device is, if the broadcast reaches devices that registered
/// by `registered_by`.
///
/// None if the device changed its transport twice since: then it is not known whether the message was sent to it,
/// and it must not get it twice.
pub fn partition_of(
    transport: TransportKind,
    change: Option<TransportChange>,
    registered_by: UnixMillis,
) -> Option<TransportKind> {
    let as_of = UnixMillis(registered_by.0.saturating_sub(CHANGE_ALLOWANCE.as_millis() as u64));
    match change {
        Some(change) if change.at > as_of => (change.from_since <= as_of).then_some(change.from),
        _ => Some(transport),
    }
}

/// The change that is remembered of a device that registers again, with `transport`.
pub fn change_after(
    before: TransportKind,
    change: Option<TransportChange>,
    transport: TransportKind,
    now: UnixMillis,
) -> Option<TransportChange> {
    if transport != before {
        let from_since = change.map_or(UnixMillis(0), |change| change.at);
        return Some(TransportChange { from: before, at: now, from_since });
    }
    change.filter(|change| now.since(change.at) <= TRANSPORT_CHANGE_KEPT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use TransportKind::{Fcm, Mqtt, Webhook};

    const ACCEPTED: UnixMillis = UnixMillis(1_800_000_000_000);

    fn at(seconds: i64) -> UnixMillis {
        UnixMillis(ACCEPTED.0.saturating_add_signed(seconds * 1000))
    }

    #[test]
    fn a_device_that_changes_its_transport_belongs_to_one_partition_of_a_broadcast() {
        let moved = change_after(Mqtt, None, Fcm, at(1));
        assert_eq!(partition_of(Fcm, moved, ACCEPTED), Some(Mqtt), "the one it was in before");
        assert_eq!(partition_of(Fcm, moved, at(120)), Some(Fcm), "a later broadcast");
        let back = change_after(Fcm, moved, Mqtt, at(600));
        assert_eq!(partition_of(Mqtt, back, ACCEPTED), None, "it may have got the message already");
        assert_eq!(partition_of(Mqtt, back, at(120)), Some(Fcm));
        assert_eq!(partition_of(Mqtt, back, at(700)), Some(Mqtt));
    }

    #[test]
    fn a_change_after_the_acceptance_never_seems_earlier_by_clocks_that_differ_as_much_as_they_may()
    {
        let allowance = MAX_CLOCK_ALLOWANCE.as_secs() as i64;
        // The broadcast was accepted by the right clock, and the change was stored by one that is late.
        let change = change_after(Mqtt, None, Fcm, UnixMillis(at(-allowance).0 + 1));
        assert_eq!(partition_of(Fcm, change, at(allowance)), Some(Mqtt));
    }

    #[test]
    fn a_change_is_forgotten_when_no_broadcast_needs_it_any_more() {
        let moved = change_after(Mqtt, None, Webhook, at(0));
        let soon = at(30 * 24 * 3600);
        assert_eq!(change_after(Webhook, moved, Webhook, soon), moved);
        assert_eq!(change_after(Webhook, moved, Webhook, at(32 * 24 * 3600)), None);
    }

    #[test]
    fn a_report_is_about_one_token_and_the_time_before_it_was_registered_again() {
        let gone = GoneDevice {
            client_id: "c".parse().unwrap(),
            transport: Fcm,
            token: Some("secret".into()),
            since: at(0),
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
        let epoch = RegistrationEpoch::new(ACCEPTED, u32::MAX);
        assert_eq!(epoch.to_string().parse(), Ok(epoch));
        assert_ne!(epoch, RegistrationEpoch::new(UnixMillis(ACCEPTED.0 + 1), u32::MAX));
        assert_ne!(epoch, RegistrationEpoch::new(ACCEPTED, 0));
    }
}
