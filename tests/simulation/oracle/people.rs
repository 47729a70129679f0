//! All devices that were ever registered, and those that a push means.

use std::time::Duration;

use push_model::{
    attributes::{Attribute, Attributes},
    device::{Device, TransportKind},
    ids::{ClientId, MessageId},
    message::{Audience, NamedUsers},
    time::UnixMillis,
};
use push_tests::invariants::Meant;

/// A device, and when it was registered and removed by the world's clock.
#[derive(Debug, Clone)]
pub(crate) struct Person {
    pub(crate) device: Device,
    pub(crate) registered: UnixMillis,
    /// The time of registration by the clock of the program that registered it.
    pub(crate) born: UnixMillis,
    /// The time of its last registration, by the same kind of clock.
    pub(crate) renewed: UnixMillis,
    pub(crate) removed: Option<UnixMillis>,
}

/// A push as its producer knows it. A retry of the producer is another acceptance of it.
#[derive(Debug, Clone)]
pub(crate) struct Push {
    pub(crate) id: MessageId,
    pub(crate) audience: Audience,
    pub(crate) copies: Vec<Copy>,
}

/// One acceptance of a push.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copy {
    pub(crate) accepted: UnixMillis,
    /// The time of acceptance by the clock of the program that accepted it.
    pub(crate) accepted_at: UnixMillis,
    /// The last instant at which a message of it may be sent.
    pub(crate) deadline: UnixMillis,
}

impl Push {
    /// The last instant at which a message of any acceptance may be sent.
    pub(crate) fn deadline(&self) -> UnixMillis {
        self.copies.iter().map(|copy| copy.deadline).max().unwrap_or_default()
    }

    /// The first instant at which one of its acceptances has expired.
    pub(crate) fn first_end(&self) -> UnixMillis {
        self.copies.iter().map(|copy| copy.deadline).min().unwrap_or_default()
    }

    /// Returns true if its devices are named one by one.
    pub(crate) fn is_named(&self) -> bool {
        matches!(self.audience, Audience::Clients(_))
    }

    /// Returns when it was accepted first, by the world's clock.
    fn accepted(&self) -> UnixMillis {
        self.copies.iter().map(|copy| copy.accepted).min().unwrap_or_default()
    }

    /// Named ids without a registered device at the time of acceptance.
    pub(crate) fn unknown(&self, people: &[Person]) -> u64 {
        let Audience::Clients(clients) = &self.audience else { return 0 };
        let is_known = |client: &&ClientId| {
            let mut people = people.iter().filter(|p| p.device.client_id == **client);
            people.any(|person| person.removed.is_none_or(|at| at >= self.accepted()))
        };
        clients.iter().filter(|client| !is_known(client)).count() as u64
    }

    /// Tells if it must, may or must not reach a device, where clocks differ by `allowance` at most.
    pub(crate) fn means(&self, person: &Person, allowance: Duration) -> Meant {
        let first = self.accepted();
        let last = self.copies.iter().map(|copy| copy.accepted_at).max().unwrap_or_default();
        let in_time = person.born <= last.plus(allowance);
        let is_in = match &self.audience {
            Audience::Clients(clients) | Audience::Users(NamedUsers { clients, .. }) => {
                clients.contains(&person.device.client_id)
            }
            Audience::All => in_time,
            Audience::Targeting(targeting) => in_time && targeting.matches(&person.device),
        };
        if !is_in || person.removed.is_some_and(|at| at < first) {
            Meant::No
        } else if person.registered > first || person.removed.is_some() {
            Meant::Maybe
        } else {
            Meant::Yes
        }
    }
}

pub(crate) fn device(name: &str, country: &str) -> Device {
    let mut attributes = Attributes::default();
    attributes.set(Attribute::Country, country).expect("a country");
    let client_id = name.parse().expect("a client id");
    Device {
        client_id,
        attributes,
        transport: TransportKind::Mqtt,
        token: None,
        profile: push_model::profile::Profile::default(),
    }
}

/// The same device, reached over the transport whose provider fails.
pub(crate) fn of_failing(device: Device) -> Device {
    Device { transport: TransportKind::Fcm, ..device }
}
