//! Counts the devices of an app for its quota, without a round trip for each registration.
//!
//! The index counts the devices of an app now and then; between two counts this process adds the
//! devices that it registers itself. The registrations of other processes meanwhile are unknown, so
//! together they may register more than the quota allows: at most the new devices of the time for
//! which a count is used.
//!
//! A device may be counted twice, if it is registered while the index counts; and a device whose client goes
//! away before the answer counts as new. So before a registration is refused the index counts again, at most
//! once in [`COUNT_PAUSE`].

use std::{
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The least time for which a count is used that says that the quota is used up.
pub(crate) const COUNT_PAUSE: Duration = Duration::from_secs(1);

/// The number of an app's devices, as this process knows it.
#[derive(Debug, Default)]
pub(crate) struct DeviceUsage {
    state: Mutex<KnownDevices>,
    /// The right to ask the index.
    counting: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct KnownDevices {
    /// The count of the index, and when it began.
    counted: Option<(u64, Instant)>,
    /// Devices that were registered since, less those that were removed.
    since: i64,
    /// Registrations in work that may be of new devices.
    in_work: u64,
}

/// A place for a new device, which is used unless it is given back.
#[derive(Debug)]
pub(crate) struct DevicePlace<'a> {
    usage: &'a DeviceUsage,
    is_used: bool,
}

impl DeviceUsage {
    /// Lets the index count if the last count is older than `max_age`. While one request waits for
    /// a count, others go on with the one before, if there is one.
    ///
    /// # Errors
    /// If there is no count yet and the index did not answer.
    pub(crate) async fn count<E>(
        &self,
        max_age: Duration,
        count: impl Future<Output = Result<u64, E>>,
    ) -> Result<(), E> {
        let is_stale = |age: Option<Duration>| age.is_none_or(|age| age >= max_age);
        let age = self.age();
        if !is_stale(age) {
            return Ok(());
        }
        let _counting = match (self.counting.try_lock(), age) {
            (Ok(counting), _) => counting,
            (Err(_), Some(_)) => return Ok(()),
            (Err(_), None) => self.counting.lock().await,
        };
        if !is_stale(self.age()) {
            return Ok(());
        }
        let begun = Instant::now();
        let before = self.change(|state| state.since);
        let answer = count.await;
        self.change(|state| match answer {
            Ok(devices) => {
                // Devices registered meanwhile may be counted twice, but none is missed.
                state.since -= before;
                state.counted = Some((devices, begun));
                Ok(())
            }
            // A count from before is used on, until the index answers again.
            Err(_) if state.counted.is_some() => Ok(()),
            Err(error) => Err(error),
        })
    }

    /// A place for a new device, if the quota has one left.
    pub(crate) fn place(&self, quota: NonZeroU32) -> Option<DevicePlace<'_>> {
        self.change(|state| {
            let counted = state.counted.map_or(0, |(devices, _)| devices);
            let known = counted.saturating_add_signed(state.since).saturating_add(state.in_work);
            let has_room = known < u64::from(quota.get());
            state.in_work += u64::from(has_room);
            // Not `then_some`: a place that is made and dropped here would take the lock again.
            has_room.then(|| DevicePlace { usage: self, is_used: true })
        })
    }

    /// Notes that a device was removed.
    pub(crate) fn removed(&self) {
        self.change(|state| state.since -= 1);
    }

    fn age(&self) -> Option<Duration> {
        self.change(|state| state.counted.map(|(_, begun)| begun.elapsed()))
    }

    fn change<T>(&self, change: impl FnOnce(&mut KnownDevices) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl DevicePlace<'_> {
    /// No new device was registered.
    pub(crate) fn give_back(mut self) {
        self.is_used = false;
    }
}

impl Drop for DevicePlace<'_> {
    fn drop(&mut self) {
        self.usage.change(|state| {
            state.in_work -= 1;
            state.since += i64::from(self.is_used);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRESH: Duration = Duration::from_secs(3);

    fn quota(devices: u32) -> NonZeroU32 {
        NonZeroU32::new(devices).unwrap()
    }

    async fn count(usage: &DeviceUsage, devices: u64) {
        usage.count(FRESH, async { Ok::<_, ()>(devices) }).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn own_registrations_are_added_to_the_count_until_the_next_one() {
        let usage = DeviceUsage::default();
        count(&usage, 3).await;
        drop(usage.place(quota(5)).unwrap());
        let in_work = usage.place(quota(5)).unwrap();
        assert!(usage.place(quota(5)).is_none());
        in_work.give_back();
        drop(usage.place(quota(5)).unwrap());
        assert!(usage.place(quota(5)).is_none());
        usage.removed();
        usage.place(quota(5)).unwrap().give_back();
        count(&usage, 0).await;
        drop(usage.place(quota(5)).expect("the first count is still used"));
        tokio::time::advance(FRESH).await;
        count(&usage, 5).await;
        assert!(usage.place(quota(5)).is_none());
        assert!(usage.place(quota(6)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_registered_since_a_count_counts_until_the_next_one_has_come() {
        let usage = DeviceUsage::default();
        count(&usage, 0).await;
        drop(usage.place(quota(1)).unwrap());
        tokio::time::advance(FRESH).await;
        // The client goes away while the index counts.
        let given_up = usage.count(FRESH, std::future::pending::<Result<u64, ()>>());
        assert!(tokio::time::timeout(Duration::from_secs(1), given_up).await.is_err());
        assert!(usage.place(quota(1)).is_none());
        let counting = usage.count(FRESH, async {
            assert!(usage.place(quota(1)).is_none(), "nor while it counts again");
            Ok::<_, ()>(1)
        });
        counting.await.unwrap();
        assert!(usage.place(quota(1)).is_none());
        drop(usage.place(quota(2)).expect("it is counted once"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_count_is_used_on_while_the_index_does_not_answer_and_the_first_is_waited_for() {
        let usage = DeviceUsage::default();
        assert!(usage.count(FRESH, async { Err(()) }).await.is_err());
        count(&usage, 5).await;
        tokio::time::advance(FRESH).await;
        assert!(usage.count(FRESH, async { Err(()) }).await.is_ok());
        assert!(usage.place(quota(5)).is_none());
    }
}
