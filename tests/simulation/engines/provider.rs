//! The providers behind the transports: the verdict that each fault stands for, and what a provider keeps
//! to afterwards, whichever process asks.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use push_model::{device::TransportKind, ids::MessageId, time::UnixMillis};
use push_providers::verdict::{AccountFault, Verdict, Whom};

use crate::faults::fault::{BROKEN, Fault, HELD, THROTTLED};

/// A time at which a device may be gone that is before all registrations.
const LONG_GONE: UnixMillis = UnixMillis(1);

/// The provider's verdict about one device, or about all of a batch; none if the fault is no verdict.
pub(crate) fn verdict(fault: Fault) -> Option<Verdict> {
    let verdict = match fault {
        Fault::OneGone | Fault::OneGoneMoved | Fault::OneGoneRenewed => {
            Verdict::Gone { since: None, code: "gone" }
        }
        Fault::OneGoneBefore => Verdict::Gone { since: Some(LONG_GONE), code: "gone" },
        Fault::OneRefused => Verdict::DeviceRefused { code: "refused", suspicious: false },
        Fault::OneThrottled => Verdict::Throttled { whom: Whom::Device, wait: Some(THROTTLED) },
        Fault::Throttled => Verdict::Throttled { whom: Whom::Account, wait: Some(HELD) },
        Fault::MessageRefused => Verdict::MessageRefused { code: "refused" },
        Fault::AccountBroken => Verdict::Account(AccountFault::Stop { code: "broken" }),
        Fault::Unavailable | Fault::UnavailableTaken => Verdict::Unavailable { wait: None },
        _ => return None,
    };
    Some(verdict)
}

/// Returns true if the devices receive the message although the verdict does not say so.
pub(crate) fn is_taken(fault: Fault) -> bool {
    fault == Fault::UnavailableTaken
}

/// What the providers keep to.
#[derive(Debug, Default)]
pub(crate) struct Providers {
    held_until: BTreeMap<TransportKind, UnixMillis>,
    broken_until: BTreeMap<TransportKind, UnixMillis>,
    refused: BTreeSet<(TransportKind, MessageId)>,
}

impl Providers {
    /// A provider gives a verdict about all devices of a message.
    pub(crate) fn note(
        &mut self,
        transport: TransportKind,
        message: MessageId,
        verdict: Verdict,
        now: UnixMillis,
    ) {
        match verdict {
            Verdict::Throttled { whom: Whom::Account, wait } => {
                self.held_until.insert(transport, now.plus(wait.unwrap_or_default()));
            }
            Verdict::MessageRefused { .. } => {
                self.refused.insert((transport, message));
            }
            Verdict::Account(_) => {
                self.broken_until.insert(transport, now.plus(BROKEN));
            }
            _ => {}
        }
    }

    /// Returns the verdict that is in force for every device of a message.
    pub(crate) fn in_force(
        &self,
        transport: TransportKind,
        message: MessageId,
        now: UnixMillis,
    ) -> Option<Verdict> {
        let left = |until: &BTreeMap<TransportKind, UnixMillis>| -> Option<Duration> {
            until.get(&transport).filter(|until| now < **until).map(|until| until.since(now))
        };
        if self.refused.contains(&(transport, message)) {
            return verdict(Fault::MessageRefused);
        }
        if left(&self.broken_until).is_some() {
            return verdict(Fault::AccountBroken);
        }
        let held = left(&self.held_until)?;
        Some(Verdict::Throttled { whom: Whom::Account, wait: Some(held) })
    }
}
