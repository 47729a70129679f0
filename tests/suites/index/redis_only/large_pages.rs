//! A ledger page on which an app puts any number of entries, with ids that it made up.

use futures::{StreamExt, stream};
use push_index::{Ledger, LedgerBounds, redis::RedisIndex};
use push_model::{
    ids::MessageId,
    ledger::{EarlyRecall, Recall},
    time::UnixMillis,
};
use push_tests::{namespace, redis_url};

use crate::support::app;

const ENTRIES: u64 = 5000;

#[tokio::test(flavor = "multi_thread")]
async fn a_page_with_thousands_of_entries_is_read_and_evicted_in_parts() {
    let namespace = namespace();
    let index = RedisIndex::connect(&redis_url(), &namespace, Default::default()).await.unwrap();
    let (page, _) = MessageId::issue_named(&app()).page_and_field();
    let now = UnixMillis::now();
    // Recalls of an hour ago, which may be evicted by now.
    let at = UnixMillis(now.0 - 3_600_000);
    let early = Some(EarlyRecall { accepted_at: at, keep_until: now.plus_seconds(86_400) });
    let ids: Vec<MessageId> = (0..ENTRIES)
        .map(|number| {
            let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
            MessageId::from_page(page, [0, a, b, 0x70 | c & 0x0f, 0x80 | d & 0x3e, e, f, g, h, 0])
        })
        .collect();
    let recall = Recall { at, early };
    let app = app();
    let recalls = stream::iter(&ids).map(|id| index.recall(&app, id, &recall));
    recalls.buffer_unordered(64).for_each(async |recalled| drop(recalled.unwrap())).await;

    let before = index.keep_within(u64::MAX, now).await.unwrap().history.bytes;
    // Each of them takes a key of its own, far more than its field.
    assert!(before > ENTRIES * 100 && before < ENTRIES * 2000, "{before}");
    let (mut rounds, mut last) = (0, 0);
    loop {
        let round = index.keep_within(0, now).await.unwrap();
        let evicted = round.history.evicted;
        assert!(evicted - last <= 512, "one round read {} entries of a page", evicted - last);
        (rounds, last) = (rounds + 1, evicted);
        if !round.more {
            break;
        }
        assert!(rounds < 100, "{round:?}");
    }
    assert_eq!(last, ENTRIES, "after {rounds} rounds");
    assert_eq!(index.entry(&app, &ids[0]).await.unwrap(), None);
}
