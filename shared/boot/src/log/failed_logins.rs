//! Counts failed logins, with the addresses that they come from, until they are logged.

use std::{
    fmt,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The most addresses that are told apart until the next line. An attack from more of them is named by
/// these, and by its number.
const ADDRESSES: usize = 4;

/// Failed logins since the last line of the log.
#[derive(Debug, Default)]
pub struct FailedLoginCount(Mutex<FailedLogins>);

/// Failed logins that were taken to be logged.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct FailedLogins {
    /// All of them.
    pub count: u64,
    /// Some of the addresses, each with its number.
    from: Vec<(IpAddr, u64)>,
}

impl FailedLoginCount {
    /// Counts a failed login. The address is none if it is not the client's own.
    pub fn add(&self, from: Option<IpAddr>) {
        let mut all = self.lock();
        all.count = all.count.saturating_add(1);
        if let Some(address) = from {
            all.add_from(address.to_canonical(), 1);
        }
    }

    /// Takes what was counted since the last call.
    pub fn take(&self) -> FailedLogins {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, FailedLogins> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FailedLogins {
    /// Adds others, which are then logged together with these.
    pub fn join(&mut self, others: Self) {
        self.count = self.count.saturating_add(others.count);
        others.from.into_iter().for_each(|(address, count)| self.add_from(address, count));
    }

    fn add_from(&mut self, address: IpAddr, count: u64) {
        if let Some((_, of_address)) = self.from.iter_mut().find(|(known, _)| *known == address) {
            *of_address = of_address.saturating_add(count);
        } else if self.from.len() < ADDRESSES {
            self.from.push((address, count));
        }
    }
}

/// The addresses, as `192.0.2.7 (12), 192.0.2.8, and others`.
impl fmt::Display for FailedLogins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (address, count)) in self.from.iter().enumerate() {
            f.write_str(if position == 0 { "" } else { ", " })?;
            match count {
                1 => write!(f, "{address}")?,
                count => write!(f, "{address} ({count})")?,
            }
        }
        let named: u64 = self.from.iter().map(|(_, count)| count).sum();
        if named < self.count && !self.from.is_empty() {
            f.write_str(", and others")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_logins_are_counted_with_a_few_of_their_addresses() {
        let logins = FailedLoginCount::default();
        for last in [7, 7, 7, 8] {
            logins.add(Some(IpAddr::from([192, 0, 2, last])));
        }
        let taken = logins.take();
        assert_eq!((taken.count, &*taken.to_string()), (4, "192.0.2.7 (3), 192.0.2.8"));
        assert_eq!(logins.take(), FailedLogins::default());
        for last in 0..100 {
            logins.add(Some(IpAddr::from([192, 0, 2, last])));
        }
        let many = logins.take();
        assert_eq!((many.count, many.from.len()), (100, ADDRESSES));
        assert!(many.to_string().ends_with("192.0.2.3, and others"), "{many}");
        logins.add(None);
        assert_eq!(logins.take().to_string(), "");
    }
}
