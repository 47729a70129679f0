//! A set of faults.

use crate::faults::fault::Fault;

/// A set of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Faults(u64);

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) {
        self.0 |= bit(fault);
    }

    /// Returns true if it is among them.
    pub(crate) fn has(self, fault: Fault) -> bool {
        self.0 & bit(fault) != 0
    }

    /// In the order of [`Fault::ALL`].
    pub(crate) fn each(self) -> impl Iterator<Item = Fault> {
        Fault::ALL.iter().copied().filter(move |fault| self.has(*fault))
    }
}

const fn bit(fault: Fault) -> u64 {
    1 << fault as u64
}
