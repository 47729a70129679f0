//! Counting an audience: how many devices a push would target, without sending it.
//!
//! A count goes through the slots of an app in slices, one after the other, and pauses now and then. Between two
//! slices the index serves other callers, so they wait for one slice at most. No device's record is read, but the
//! columns alone, at different times: devices that are registered, changed or removed meanwhile may be
//! counted or not.

use std::time::Duration;

use push_model::{
    app::AppKey,
    audience::AudienceCounts,
    device::TargetFields,
    ids::ClientId,
    message::{Audience, NamedUsers},
    targeting::Targeting,
};
use push_store::IndexError;
use tokio::time::sleep;

use crate::Devices;

/// The slots after which a count pauses. It thus looks at some 30 million slots a second at most.
const SLOTS_TO_PAUSE: u32 = 32 * 1024;

/// The pause, in which the index serves others alone.
const PAUSE: Duration = Duration::from_millis(1);

/// Devices that are looked up at a time.
const LOOKED_UP: usize = 1024;

/// Some slots' part of a count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CountedSlice {
    /// What was counted.
    pub counts: AudienceCounts,
    /// Where the next slice begins; none at the end of the range.
    pub next: Option<u32>,
}

/// Counts the devices of an audience. Of named devices those count that are registered.
///
/// # Errors
/// If the index did not answer.
pub async fn count_audience<D: Devices + ?Sized>(
    index: &D,
    app: &AppKey,
    audience: &Audience,
) -> Result<AudienceCounts, IndexError> {
    match audience {
        Audience::All => count_matching(index, app, &Targeting::all_devices()).await,
        Audience::Targeting(targeting) => count_matching(index, app, targeting).await,
        Audience::Clients(clients) | Audience::Users(NamedUsers { clients, .. }) => {
            count_registered(index, app, clients).await
        }
    }
}

async fn count_matching<D: Devices + ?Sized>(
    index: &D,
    app: &AppKey,
    targeting: &Targeting,
) -> Result<AudienceCounts, IndexError> {
    let (mut counts, mut since_pause) = (AudienceCounts::none(targeting), 0);
    for mut range in index.extent(app).await? {
        while range.from < range.to {
            let slice = index.count_slice(app, range, targeting).await?;
            counts.add(&slice.counts);
            // A slice that gets no further would be counted again and again.
            let next = slice.next.filter(|next| *next > range.from).unwrap_or(range.to);
            since_pause += next - range.from;
            range.from = next;
            if since_pause >= SLOTS_TO_PAUSE {
                since_pause = 0;
                sleep(PAUSE).await;
            }
        }
    }
    Ok(counts)
}

async fn count_registered<D: Devices + ?Sized>(
    index: &D,
    app: &AppKey,
    clients: &[ClientId],
) -> Result<AudienceCounts, IndexError> {
    let mut counts = AudienceCounts::default();
    for clients in clients.chunks(LOOKED_UP) {
        for target in
            index.targets(app, clients, TargetFields::Address).await?.into_iter().flatten()
        {
            counts.add_devices(target.transport, 1);
        }
    }
    Ok(counts)
}
