//! A ledger page on which an app puts any number of entries, with ids that it made up.

use futures::{StreamExt, stream};
use push_ledger::{Ledger, LedgerBounds, redis::RedisLedger};
use push_model::{
    ids::{AppTag, MessageId, PageField},
    ledger::{EarlyRecall, Recall},
    time::UnixMillis,
};
use push_store::redis::RedisStore;
use push_tests::{namespace, redis_url};

use crate::index::support::{admin, app, key};

const ENTRIES: u64 = 5000;

/// The most entries of a page, and the mark that it was full.
const MOST: u64 = 257;

#[tokio::test(flavor = "multi_thread")]
async fn a_page_has_a_few_hundred_entries_however_many_share_it() {
    let namespace = namespace();
    let store = RedisStore::connect(&redis_url(), &namespace, Default::default()).await.unwrap();
    let ledger = RedisLedger::new(store);
    let (page, PageField(field)) =
        MessageId::issue_named(&app()).page_and_field(AppTag::of(&key()));
    let now = UnixMillis::now();
    // Recalls of an hour ago, which may be evicted by now.
    let at = UnixMillis(now.0 - 3_600_000);
    let early = Some(EarlyRecall { accepted_at: at, keep_until: now.plus_seconds(86_400) });
    let ids: Vec<MessageId> = (0..ENTRIES)
        .map(|number| {
            let [.., high, low] = number.to_be_bytes();
            let mut made_up = field;
            (made_up[1], made_up[2], made_up[5]) = (high, low, 200);
            MessageId::from_page(page, PageField(made_up))
        })
        .collect();
    let recall = Recall { at, early };
    let app = key();
    let recalls = stream::iter(&ids).map(|id| ledger.recall(&app, id, &recall));
    recalls.buffer_unordered(64).for_each(async |recalled| drop(recalled.unwrap())).await;

    let mut redis = admin(&redis_url()).await;
    let pattern = format!("{namespace}:*:p*");
    let keys: Vec<String> = redis::cmd("KEYS").arg(&pattern).query_async(&mut redis).await.unwrap();
    let mut longest = 0;
    for key in &keys {
        longest = longest.max(redis::cmd("HLEN").arg(key).query_async(&mut redis).await.unwrap());
    }
    assert_eq!((longest, keys.len() as u64), (MOST, 1 + ENTRIES - (MOST - 1)));

    let before = ledger.keep_within(u64::MAX, now).await.unwrap().history.bytes;
    // Each of them takes a key of its own, far more than its field.
    assert!(before > ENTRIES * 100 && before < ENTRIES * 2000, "{before}");
    let mut round = ledger.keep_within(0, now).await.unwrap();
    for _ in 0..100 {
        if round.more {
            round = ledger.keep_within(0, now).await.unwrap();
        }
    }
    assert_eq!(round.history.evicted, ENTRIES, "{round:?}");
    assert_eq!(ledger.entry(&app, &ids[0]).await.unwrap(), None);
}
