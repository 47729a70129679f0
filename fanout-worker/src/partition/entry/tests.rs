use std::collections::BTreeMap;

use push_model::{
    ids::MessageId,
    ledger::{Leftover, Outcomes, Partition},
};
use uuid::Uuid;

use super::*;

const RETRY: RetryPolicy =
    RetryPolicy { first: Duration::from_secs(1), longest: Duration::from_secs(60) };

fn entry(unanswered: u32) -> Entry {
    let leftover = Leftover {
        attempt: 1,
        unanswered,
        throttled: 0,
        due_at: UnixMillis(0),
        clients: vec!["d".parse().unwrap()],
    };
    let partition = Partition { leftovers: vec![leftover], ..Partition::default() };
    Entry {
        message_id: MessageId::from_uuid(Uuid::from_u128(1)),
        app_id: "app".parse().unwrap(),
        accepted_at: UnixMillis(0),
        expires_at: Some(UnixMillis(100_000)),
        dedup_nonce: Some(1),
        recalled_at: None,
        plan: Some(Plan::named()),
        partitions: BTreeMap::from([(0, partition)]),
        targeted: 1,
        outcomes: Outcomes::default(),
        retried: BTreeMap::new(),
        broadcast: None,
    }
}

/// The seconds until the next look of a copy that was accepted at 10 s.
fn wait(now: u64, deadline: u64) -> u64 {
    let [now, deadline] = [now, deadline].map(|seconds| UnixMillis(seconds * 1000));
    let next = next_look(&entry(1), UnixMillis(10_000), deadline, now, &RETRY);
    next.since(now).as_secs()
}

#[test]
fn an_answer_is_awaited_until_something_is_known() {
    assert!(awaits_answer(&entry(1)));
    assert!(!awaits_answer(&entry(0)), "nothing was handed over");
    let sent = Outcomes { sent: 1, ..Outcomes::default() };
    assert!(!awaits_answer(&Entry { outcomes: sent, ..entry(1) }));
    let retried = BTreeMap::from([(RetryReason::Unanswered, 1)]);
    assert!(!awaits_answer(&Entry { retried, ..entry(1) }), "a try gave no answer");
    assert!(!awaits_answer(&Entry { recalled_at: Some(UnixMillis(1)), ..entry(1) }));
}

#[test]
fn a_copy_looks_at_growing_intervals_and_at_the_expiry_of_the_first_one() {
    let waits = [10, 11, 14, 40, 90].map(|now| wait(now, 1000));
    assert_eq!(waits, [1, 1, 4, 30, 10]);
    assert_eq!([101, 104, 140].map(|now| wait(now, 1000)), [1, 4, 40]);
}

#[test]
fn a_copy_that_is_looked_at_late_still_has_time_to_be_sent() {
    for left in 5..100 {
        let asked = wait(150, 150 + left) + RETRY.first.as_secs();
        assert!(asked + asked / 4 + 1 < left, "{asked} s of {left} s");
    }
    assert_eq!(wait(150, 149), 50, "after its own deadline it only waits for the end");
}
