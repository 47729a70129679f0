//! Counting an audience: how many devices a push would target, without sending it.
//!
//! A count goes through the slots of an app in slices. No device's record is read, but the columns alone, at different
//! times: devices that are registered, changed or removed meanwhile may be counted or not. A sample is decided by client
//! ids, which no column has, so its counts are estimates: its share of what the other criteria leave.

use std::collections::HashMap;

use push_model::{
    app::AppKey,
    audience::{AudienceCounts, Criterion, CriterionCount},
    device::TargetFields,
    filter::Sample,
    ids::{ClientId, UserId},
    message::Audience,
    targeting::Targeting,
};
use push_store::IndexError;

use crate::{Devices, walk::Walk};

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

/// Counts the devices of an audience. Of named devices those count that are registered, and of users' devices those
/// that still belong to their user.
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
        Audience::Targeting(targeting) => {
            let mut targeting = targeting.clone();
            let sample = targeting.sample.take();
            let mut counts = count_matching(index, app, &targeting).await?;
            if let Some(sample) = sample {
                take_sample(&mut counts, &sample);
            }
            Ok(counts)
        }
        Audience::Clients(clients) => count_registered(index, app, clients, &HashMap::new()).await,
        Audience::Users(named) => {
            count_registered(index, app, &named.clients, &named.expected_users()).await
        }
    }
}

/// Counts the devices that match a targeting without a sample.
async fn count_matching<D: Devices + ?Sized>(
    index: &D,
    app: &AppKey,
    targeting: &Targeting,
) -> Result<AudienceCounts, IndexError> {
    let mut counts = AudienceCounts::none(targeting);
    let mut walk = Walk::begin(index, app).await?;
    while let Some(range) = walk.rest() {
        let slice = index.count_slice(app, range, targeting).await?;
        counts.add(&slice.counts);
        walk.go_on(slice.next).await;
    }
    Ok(counts)
}

/// Leaves a sample's share of the counts, which is their last criterion. The shares of the transports add up to that of
/// all.
fn take_sample(counts: &mut AudienceCounts, sample: &Sample) {
    let (mut before, mut taken) = (0_u64, 0);
    for devices in counts.by_transport.values_mut() {
        before = before.saturating_add(*devices);
        *devices = sample.share_of(before).saturating_sub(taken);
        taken += *devices;
    }
    counts.by_transport.retain(|_, devices| *devices > 0);
    counts.devices = taken;
    let left = CriterionCount { criterion: Criterion::Sample, devices: taken };
    counts.after_each_criterion.push(left);
}

async fn count_registered<D: Devices + ?Sized>(
    index: &D,
    app: &AppKey,
    clients: &[ClientId],
    users: &HashMap<&ClientId, &UserId>,
) -> Result<AudienceCounts, IndexError> {
    let mut counts = AudienceCounts::default();
    for clients in clients.chunks(LOOKED_UP) {
        let targets = index.targets(app, clients, TargetFields::Address).await?;
        for (client, target) in clients.iter().zip(targets) {
            let Ok(target) = target else { continue };
            if users.get(client).is_none_or(|user| target.user_id.as_ref() == Some(user)) {
                counts.add_devices(target.transport, 1);
            }
        }
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use push_model::device::TransportKind;

    use super::*;

    #[test]
    fn the_transports_of_a_sample_add_up_to_its_devices() {
        let sample = |from, to| Sample { from, to, seed: "s".into() };
        let whole = || {
            let mut counts = AudienceCounts::default();
            for (transport, devices) in
                [(TransportKind::Mqtt, 3), (TransportKind::Fcm, 3), (TransportKind::Apns, 4)]
            {
                counts.add_devices(transport, devices);
            }
            counts
        };
        for to in [0, 1, 500, 2500, 3333, 5000, 10_000] {
            let mut counts = whole();
            take_sample(&mut counts, &sample(0, to));
            assert_eq!(counts.devices, sample(0, to).share_of(10), "{to}");
            assert_eq!(counts.by_transport.values().sum::<u64>(), counts.devices, "{to}");
            let left = CriterionCount { criterion: Criterion::Sample, devices: counts.devices };
            assert_eq!(counts.after_each_criterion, [left], "{to}");
        }
        let mut all = whole();
        take_sample(&mut all, &sample(0, 10_000));
        assert_eq!(all.by_transport, whole().by_transport);
    }
}
