//! The list of broadcasts that are not finished, and what is left of them.

use push_ledger::{Ledger, MAX_LISTED, begin_recall};
use push_model::{
    ids::{AudienceKind, MessageId},
    open_broadcast::OpenBroadcast,
    time::UnixMillis,
};

use super::fill::RETENTION;
use crate::index::support::{app, key};

fn broadcast(devices_left: &[u32]) -> OpenBroadcast {
    OpenBroadcast {
        message_id: MessageId::issue(&app(), AudienceKind::Broadcast),
        app: key(),
        ends_at: UnixMillis(1 << 41),
        devices_left: devices_left.to_vec(),
    }
}

async fn listed(ledger: &dyn Ledger) -> Vec<OpenBroadcast> {
    let mut listed = ledger.open_broadcasts().await.unwrap();
    listed.sort_by_key(|broadcast| broadcast.message_id);
    listed
}

pub(crate) async fn a_broadcast_is_listed_with_what_is_left_of_each_partition_until_nothing_is(
    ledger: &dyn Ledger,
) {
    assert!(listed(ledger).await.is_empty());
    let mut all = [broadcast(&[100, 200, u32::MAX]), broadcast(&[5])];
    all.sort_by_key(|broadcast| broadcast.message_id);
    let three = all.iter().position(|broadcast| broadcast.devices_left.len() == 3).unwrap();
    for broadcast in &all {
        ledger.list_broadcast(broadcast).await.unwrap();
    }
    assert_eq!(listed(ledger).await, all);
    let message = all[three].message_id;
    let none_done = OpenBroadcast { devices_left: vec![7; 3], ..all[three].clone() };
    ledger.list_broadcast(&none_done).await.unwrap();
    assert_eq!(listed(ledger).await, all, "what is listed stays as it is");

    ledger.set_devices_left(&message, 1, 0x0102_0304).await.unwrap();
    ledger.set_devices_left(&message, 2, 0).await.unwrap();
    ledger.set_devices_left(&message, 3, 9).await.unwrap();
    all[three].devices_left = vec![100, 0x0102_0304, 0];
    assert_eq!(listed(ledger).await, all);
    ledger.set_devices_left(&message, 0, 0).await.unwrap();
    assert_eq!(listed(ledger).await.len(), 2, "of one partition something is left");
    ledger.set_devices_left(&message, 1, 0).await.unwrap();
    assert_eq!(listed(ledger).await, [all[1 - three].clone()]);
}

pub(crate) async fn what_is_not_listed_stays_so_whatever_a_late_worker_notes(ledger: &dyn Ledger) {
    let ended = broadcast(&[1, 1]);
    ledger.set_devices_left(&ended.message_id, 0, 5).await.unwrap();
    ledger.list_broadcast(&ended).await.unwrap();
    ledger.unlist_broadcast(&ended.message_id).await.unwrap();
    ledger.set_devices_left(&ended.message_id, 1, 5).await.unwrap();
    ledger.unlist_broadcast(&ended.message_id).await.unwrap();
    assert!(listed(ledger).await.is_empty());
}

pub(crate) async fn a_recalled_broadcast_has_nothing_left(ledger: &dyn Ledger) {
    let (recalled, other) = (broadcast(&[10]), broadcast(&[20]));
    ledger.list_broadcast(&recalled).await.unwrap();
    ledger.list_broadcast(&other).await.unwrap();
    let now = UnixMillis::now();
    begin_recall(ledger, &key(), &recalled.message_id, now, RETENTION).await.unwrap();
    assert_eq!(listed(ledger).await, [other]);
}

pub(crate) async fn no_more_broadcasts_are_listed_than_one_request_can_read(ledger: &dyn Ledger) {
    let all: Vec<OpenBroadcast> = (0..=MAX_LISTED).map(|_| broadcast(&[1])).collect();
    for broadcast in &all {
        ledger.list_broadcast(broadcast).await.unwrap();
    }
    assert_eq!(listed(ledger).await.len(), MAX_LISTED);
    ledger.unlist_broadcast(&all[0].message_id).await.unwrap();
    ledger.list_broadcast(&all[MAX_LISTED]).await.unwrap();
    assert_eq!(listed(ledger).await.len(), MAX_LISTED, "one more fits where another one ended");
}
