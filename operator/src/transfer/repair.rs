//! Makes the devices of a target equal to those of a source where a comparison found differences: what
//! the source has lost meanwhile is removed, what it has gained or changed is stored.
//!
//! A registered device keeps its first registration, so a device of another registration is removed
//! and stored anew.

use std::collections::HashMap;

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use push_index::Index;
use push_model::{
    app::AppKey,
    ids::ClientId,
    transfer::{Position, Registration},
};

use super::{
    arrive::store,
    digest::{Digest, HashKeys},
    source::Source,
};

/// About the most devices of both sides that are in memory at the same time. The buckets of a larger
/// difference are repaired one group after the other, with a pass over both sides for each.
const DEVICES_AT_ONCE: u64 = 400_000;
/// Removals that are in flight at once.
const REMOVALS_AT_ONCE: usize = 32;

/// The devices of some buckets.
type Known = HashMap<ClientId, Registration>;

/// The changes of one group of buckets.
#[derive(Debug, Default, PartialEq)]
struct Changes {
    /// The number of removed devices that are not stored again.
    gone: u64,
    remove: Vec<ClientId>,
    store: Vec<Registration>,
}

/// Repairs the target; returns how many devices were removed or stored. `is_ours` is asked before each
/// group is changed, and says with an error that the target must not be changed any more.
pub(super) async fn repair(
    (source, at_source): (&dyn Source, &Digest),
    (target, at_target): (&dyn Source, &Digest),
    keys: &HashKeys,
    (index, app): (&dyn Index, &AppKey),
    is_ours: impl AsyncFn() -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let mut repaired = 0;
    for buckets in groups(at_source.differences(at_target)) {
        let known = devices_of(source, keys, &buckets).await?;
        let found = devices_of(target, keys, &buckets).await?;
        let Changes { gone, remove, store: stored } = changes(known, &found);
        is_ours().await?;
        stream::iter(&remove)
            .map(|client| index.remove_device(app, client))
            .buffer_unordered(REMOVALS_AT_ONCE)
            .try_for_each(|_| async { Ok(()) })
            .await
            .context("devices that the source does not have cannot be removed")?;
        store(index, app, &stored).await?;
        repaired += gone + stored.len() as u64;
    }
    Ok(repaired)
}

/// Buckets whose devices fit into memory together.
fn groups(buckets: Vec<(usize, u64)>) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut devices = u64::MAX;
    for (bucket, count) in buckets {
        devices = devices.saturating_add(count);
        match groups.last_mut() {
            Some(group) if devices <= DEVICES_AT_ONCE => group.push(bucket),
            _ => {
                groups.push(vec![bucket]);
                devices = count;
            }
        }
    }
    groups
}

/// The devices of these buckets, which are sorted.
async fn devices_of(
    source: &dyn Source,
    keys: &HashKeys,
    buckets: &[usize],
) -> anyhow::Result<Known> {
    let mut known = Known::new();
    let mut at = Some(Position::default());
    while let Some(from) = at {
        let batch = source.batch(from).await?;
        let devices = batch.devices.into_iter();
        let devices = devices
            .filter(|found| buckets.binary_search(&keys.bucket(&found.device.client_id)).is_ok());
        known.extend(devices.map(|found| (found.device.client_id.clone(), found)));
        at = batch.next;
    }
    Ok(known)
}

fn changes(mut known: Known, found: &Known) -> Changes {
    let mut changes = Changes::default();
    for (client, found) in found {
        match known.get(client) {
            Some(known) if known.stamp.epoch() == found.stamp.epoch() => {}
            Some(_) => changes.remove.push(client.clone()),
            None => {
                changes.gone += 1;
                changes.remove.push(client.clone());
            }
        }
        if known.get(client) == Some(found) {
            known.remove(client);
        }
    }
    changes.store = known.into_values().collect();
    changes
}

#[cfg(test)]
mod tests {
    use push_model::{
        attributes::Attributes,
        device::{Device, TransportKind},
        registration::{Serial, Stamp},
        time::UnixMillis,
    };

    use super::*;

    fn known(devices: &[(&str, TransportKind, u64)]) -> Known {
        let device = |(id, transport, at): &(&str, TransportKind, u64)| {
            let client_id: ClientId = id.parse().unwrap();
            let (attributes, token) = (Attributes::default(), None);
            let device = Device {
                client_id: client_id.clone(),
                attributes,
                transport: *transport,
                token,
                profile: push_model::profile::Profile::default(),
            };
            (client_id, Registration { device, stamp: Stamp::new(UnixMillis(*at), Serial::of(0)) })
        };
        devices.iter().map(device).collect()
    }

    #[test]
    fn what_differs_is_stored_and_what_is_gone_or_younger_is_removed_first() {
        use TransportKind::{Discard, Mqtt};
        let source =
            [("same", Mqtt, 1), ("changed", Discard, 1), ("again", Mqtt, 9), ("new", Mqtt, 9)];
        let target =
            [("same", Mqtt, 1), ("changed", Mqtt, 1), ("again", Mqtt, 1), ("gone", Mqtt, 1)];
        let Changes { gone, remove, store } = changes(known(&source), &known(&target));
        let mut removed: Vec<_> = remove.iter().map(ClientId::as_str).collect();
        let mut stored: Vec<_> = store.iter().map(|one| one.device.client_id.as_str()).collect();
        removed.sort_unstable();
        stored.sort_unstable();
        assert_eq!((gone, removed), (1, vec!["again", "gone"]));
        assert_eq!(stored, ["again", "changed", "new"]);
    }

    #[test]
    fn groups_of_buckets_fit_into_memory_and_leave_none_out() {
        let buckets: Vec<_> = (0..4096).map(|bucket| (bucket, 1000)).collect();
        let groups = groups(buckets);
        assert!(groups.iter().all(|group| group.len() as u64 * 1000 <= DEVICES_AT_ONCE));
        assert_eq!(groups.concat(), (0..4096).collect::<Vec<_>>());
        assert_eq!(groups.len(), 4096 / 400 + 1);
        let large = super::groups(vec![(3, DEVICES_AT_ONCE + 1), (5, 1)]);
        assert_eq!(large, [[3], [5]]);
    }
}
