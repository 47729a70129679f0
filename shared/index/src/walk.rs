//! Walking through the slots of an app in slices, one after the other, with pauses. Between two slices the index serves
//! other callers, so they wait for one slice at most.

use std::time::Duration;

use push_model::{app::AppKey, slots::SlotRange};
use push_store::IndexError;
use tokio::time::sleep;

use crate::Devices;

/// The slots after which a walk pauses. It thus looks at some 30 million slots a second at most.
const SLOTS_TO_PAUSE: u32 = 32 * 1024;

/// The pause, in which the index serves others alone.
const PAUSE: Duration = Duration::from_millis(1);

/// The slots of an app that were not looked at yet.
#[derive(Debug)]
pub(crate) struct Walk {
    ranges: Vec<SlotRange>,
    since_pause: u32,
}

impl Walk {
    /// Begins a walk through all slots of an app.
    ///
    /// # Errors
    /// If the index did not answer.
    pub(crate) async fn begin<D: Devices + ?Sized>(
        index: &D,
        app: &AppKey,
    ) -> Result<Self, IndexError> {
        Ok(Self { ranges: index.extent(app).await?, since_pause: 0 })
    }

    /// Returns the range with which the next slice begins; none at the end of the walk.
    pub(crate) fn rest(&self) -> Option<SlotRange> {
        self.ranges.last().copied()
    }

    /// Goes on behind a slice of that range. `next` is where the index stopped; none at the end of the range.
    pub(crate) async fn go_on(&mut self, next: Option<u32>) {
        let Some(range) = self.ranges.last_mut() else { return };
        // A slice that gets no further would be looked at again and again.
        let next = next.filter(|next| *next > range.from).unwrap_or(range.to);
        self.since_pause += next.saturating_sub(range.from);
        range.from = next;
        if range.from >= range.to {
            self.ranges.pop();
        }
        if self.since_pause >= SLOTS_TO_PAUSE {
            self.since_pause = 0;
            sleep(PAUSE).await;
        }
    }
}
