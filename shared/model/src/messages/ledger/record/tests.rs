use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    id_key::IdKey,
    ids::AppId,
    ledger::{Outcomes, Partition, Retried},
};

fn app() -> AppId {
    "a".parse().unwrap()
}

fn entry(message: MessageId, state: PartitionState, outcomes: Outcomes) -> Entry {
    let accepted_at = message.time().unwrap_or(UnixMillis(1_700_000_000_000));
    Entry {
        message_id: message,
        app_id: app(),
        accepted_at,
        expires_at: Some(UnixMillis(accepted_at.0 + 3_600_000)),
        dedup_nonce: Some(0),
        recalled_at: None,
        plan: Some(Plan::named()),
        partitions: BTreeMap::from([(0, Partition { state, leftovers: Vec::new() })]),
        targeted: outcomes.total(),
        outcomes,
        retried: Retried::new(),
        broadcast: None,
    }
}

#[test]
fn a_push_that_was_sent_to_one_device_takes_8_bytes() {
    let outcomes = Outcomes { sent: 1, ..Outcomes::default() };
    let done = entry(MessageId::issue_named(&app()), PartitionState::ENDED, outcomes);
    let record = encode(&done).unwrap();
    assert_eq!(decode(&app(), &done.message_id, &record), Ok(done));
    assert_eq!(record.len(), 8);
}

#[test]
fn counts_are_added_by_appending_to_a_record() {
    let claim = Some(Claim { epoch: 1, nonce: 2, delivery: 1, owner: 3 });
    let state = PartitionState { claim, ..PartitionState::default() };
    let begun = entry(MessageId::issue_named(&app()), state, Outcomes::default());
    let record = encode(&begun).unwrap();
    let old = head(0, &state, false);
    let outcomes = Outcomes { sent: 2, ..Outcomes::default() };
    let more = Counts { targeted: 2, outcomes: outcomes.clone(), retried: Retried::new() };
    let new = [
        &head(0, &PartitionState::ENDED, false)[..],
        record.strip_prefix(&old[..]).unwrap(),
        &counts(&more),
        &counts(&more),
    ]
    .concat();
    let read = decode(&app(), &begun.message_id, &new).unwrap();
    assert_eq!(
        (read.targeted, read.outcomes.sent, read.partition(0).state.is_ended()),
        (4, 4, true)
    );
}

#[test]
fn what_does_not_fit_into_a_record_is_none() {
    let fits = entry(MessageId::issue_named(&app()), PartitionState::ENDED, Outcomes::default());
    assert!(encode(&fits).is_some());
    let planned = Plan::of(crate::device::TransportKind::Mqtt, vec![vec![], vec![]]);
    for other in [
        Entry { plan: Some(planned), ..fits.clone() },
        Entry { plan: None, ..fits.clone() },
        Entry { targeted: 1, ..fits.clone() },
        Entry { dedup_nonce: None, ..fits.clone() },
        Entry { expires_at: None, ..fits },
    ] {
        assert_eq!(encode(&other), None, "{other:?}");
    }
}

fn states() -> impl Strategy<Value = PartitionState> {
    let claims = (any::<u64>(), any::<u64>(), any::<u32>(), any::<u64>());
    let claims =
        claims.prop_map(|(epoch, nonce, delivery, owner)| Claim { epoch, nonce, delivery, owner });
    let checkpoints = (0..u32::MAX - 1, any::<u32>());
    let checkpoints = checkpoints.prop_map(|(range, offset)| Checkpoint::At { range, offset });
    let checkpoints = prop_oneof![Just(Checkpoint::End), checkpoints];
    (proptest::option::of(claims), any::<u64>(), checkpoints)
        .prop_map(|(claim, step, checkpoint)| PartitionState { claim, step, checkpoint })
}

proptest! {
    #[test]
    fn a_record_is_read_as_it_was_written(
        state in states(),
        dedup_nonce: u64,
        (late, life) in (-100_000_i64..100_000, 0_u64..1_u64 << 40),
        counts in proptest::collection::vec(0_u64..1_u64 << 40, 14),
        recalled in proptest::option::of(any::<u32>()),
        derived: bool,
    ) {
        let message = if derived {
            MessageId::derive(&app(), &IdKey::from([0; 16]), b"k")
        } else {
            MessageId::issue_named(&app())
        };
        let mut outcomes =
            Outcomes { sent: counts[0], expired: counts[1], recalled: counts[2], ..Outcomes::default() };
        for (reason, count) in FailReason::ALL.into_iter().zip(&counts[3..]) {
            outcomes.failed.insert(reason, *count + 1);
        }
        let mut entry = entry(message, state, outcomes);
        entry.dedup_nonce = Some(dedup_nonce);
        entry.accepted_at = UnixMillis(entry.accepted_at.0.saturating_add_signed(late));
        entry.expires_at = Some(UnixMillis(entry.accepted_at.0 + life));
        entry.recalled_at = recalled.map(|at| UnixMillis(u64::from(at)));
        for (reason, count) in RetryReason::ALL.into_iter().zip(&counts[10..]) {
            entry.retried.insert(reason, *count + 1);
        }
        if state == PartitionState::default() {
            entry.partitions.clear();
        }
        let record = encode(&entry).unwrap();
        prop_assert!(record.starts_with(&head(dedup_nonce, &state, recalled.is_some())));
        let preamble = preamble(&message, &record).unwrap();
        prop_assert_eq!((preamble.accepted_at, Some(preamble.expires_at)), (entry.accepted_at, entry.expires_at));
        prop_assert_eq!(decode(&app(), &message, &record), Ok(entry));
    }

    #[test]
    fn bytes_that_are_no_record_are_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = decode(&app(), &MessageId::issue_named(&app()), &bytes);
    }
}
