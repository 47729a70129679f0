//! The bound of an app's list of messages: in Redis a list keeps its newest members.

use push_ledger::Ledger;
use push_model::{
    ids::MessageId,
    ledger::{ListPlace, NewEntry, Plan},
    time::UnixMillis,
};
use uuid::Uuid;

use crate::index::{engines, support::key};

/// An entry whose id begins with the number of its part of the ledger, as a derived one can.
fn in_stripe(stripe: u8, number: u64) -> NewEntry {
    let mut id = [0; 16];
    id[0] = stripe;
    id[4..12].copy_from_slice(&number.to_be_bytes());
    let at = UnixMillis(UnixMillis::now().0 - 60_000 + number);
    NewEntry {
        message_id: MessageId::from_uuid(Uuid::new_v8(id)).for_app(&key()),
        app: key(),
        accepted_at: at,
        expires_at: at.plus_seconds(600),
        dedup_nonce: 1,
        keep_until: at.plus_seconds(3600),
        plan: Some(Plan::named()),
        claim: None,
        replaces: None,
        broadcast: None,
    }
}

#[tokio::test]
async fn a_list_that_is_full_ends_where_members_are_missing_and_has_no_gap() {
    let engine = engines::redis().await;
    let ledger: &dyn Ledger = engine.part();
    let mut entries: Vec<_> = (0..300).map(|number| in_stripe(7, number)).collect();
    entries.extend((0..300).step_by(10).map(|number| in_stripe(9, number)));
    for new in &entries {
        ledger.begin(new).await.unwrap().unwrap();
    }
    let (mut before, mut listed) = (None, Vec::new());
    loop {
        let page = ledger.entries_before(&key(), before, 50).await.unwrap();
        listed.extend(page.entries.iter().map(ListPlace::of_entry));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    let mut newest: Vec<_> =
        entries.iter().map(|new| ListPlace::of(&new.message_id, new.accepted_at)).collect();
    newest.sort_unstable_by_key(|place| std::cmp::Reverse(*place));
    assert!(listed.len() > 100, "{}", listed.len());
    assert!(listed.len() < 120, "{}", listed.len());
    assert_eq!(listed, newest[..listed.len()]);
}
