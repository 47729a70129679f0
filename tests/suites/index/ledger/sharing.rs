//! Sharing of the ledger: each app sees its own entries, and loses history only while it holds more than
//! its share.

use futures::{StreamExt, stream};
use push_ledger::Ledger;
use push_model::{
    app::AppKey,
    ids::{AppTag, AudienceKind, MessageId, PageField},
    ledger::{EarlyRecall, NewEntry, Recall, RecallOutcome},
    time::UnixMillis,
};

use super::fill::{APART, beginning, finish, measure, new_entry, rounds};
use crate::index::support::{app, key};

fn named(name: &str) -> AppKey {
    AppKey::first(name.parse().unwrap())
}

fn entry_of(app: &AppKey, message: MessageId) -> NewEntry {
    NewEntry { app: app.clone(), ..new_entry(message) }
}

async fn kept(ledger: &dyn Ledger, app: &AppKey, messages: &[MessageId]) -> usize {
    let entries = stream::iter(messages).map(|message| ledger.entry(app, message));
    entries
        .buffer_unordered(64)
        .filter(|entry| {
            let is_kept = entry.as_ref().unwrap().is_some();
            async move { is_kept }
        })
        .count()
        .await
}

async fn finish_all(ledger: &dyn Ledger, app: &AppKey, messages: &[MessageId]) {
    let all = stream::iter(messages).map(|message| finish(ledger, app, *message));
    all.buffer_unordered(64).collect::<()>().await;
}

pub(crate) async fn a_quiet_app_keeps_its_history_while_a_loud_one_overflows_the_ledger(
    ledger: &dyn Ledger,
) {
    const STEPS: u32 = 20;
    let (quiet, loud) = (named("quiet"), named("loud"));
    let (mut of_quiet, mut of_loud) = (Vec::new(), Vec::new());
    for step in 0..STEPS {
        let at = beginning().plus(APART * step);
        // Ids in a row are on one page, so the two apps share pages.
        for number in 0..60 {
            let (app, ids) = match number % 12 {
                0 => (&quiet, &mut of_quiet),
                _ => (&loud, &mut of_loud),
            };
            ids.push(MessageId::issue_at(&app.id, AudienceKind::Named, at));
        }
    }
    // One after the other: pages go in the order in which they were begun.
    for message in &of_quiet {
        finish(ledger, &quiet, *message).await;
    }
    finish_all(ledger, &loud, &of_loud).await;
    let bytes = measure(ledger).await;
    let history = rounds(ledger, bytes / 2).await.history;
    assert!(history.bytes <= bytes / 2 && history.evicted > 0, "{history:?}");
    assert_eq!(kept(ledger, &quiet, &of_quiet).await, of_quiet.len(), "{history:?}");
    let (oldest, newest) = of_loud.split_at(of_loud.len() / 4);
    assert_eq!(kept(ledger, &loud, oldest).await, 0, "its oldest go first");
    let newest = &newest[newest.len() * 2 / 3..];
    assert_eq!(kept(ledger, &loud, newest).await, newest.len(), "and its newest stay");
    // Messages of the quiet app without an entry may still wait, those of the loud one may not.
    let until = ledger.evicted_until(&loud, &oldest[0]).await.unwrap();
    assert!(until >= oldest[0].time(), "{until:?}");
    assert_eq!(ledger.evicted_until(&quiet, &of_quiet[0]).await.unwrap(), None);
    // What was kept on the way goes in its turn.
    rounds(ledger, 0).await;
    assert_eq!(kept(ledger, &quiet, &of_quiet).await, 0);
    assert_eq!(kept(ledger, &loud, &of_loud).await, 0);
}

pub(crate) async fn thousands_of_made_up_ids_of_one_page_cost_their_own_app_only(
    ledger: &dyn Ledger,
) {
    const MADE_UP: u64 = 79_000;
    let (quiet, attacker) = (named("quiet"), named("attacker"));
    let of_quiet: Vec<_> = (0..40)
        .map(|step| {
            MessageId::issue_at(&quiet.id, AudienceKind::Named, beginning().plus(APART * step))
        })
        .collect();
    finish_all(ledger, &quiet, &of_quiet).await;
    // On one page: ids of the quiet app, and all that the attacker made up.
    let (victim, neighbour) =
        (MessageId::issue_named(&quiet.id), MessageId::issue_named(&quiet.id));
    let (page, PageField(field)) = victim.page_and_field(AppTag::of(&attacker));
    let [t3, _, _, a, b, ..] = field;
    let made_up = (0..MADE_UP).map(|number| {
        let [.., high, low, last] = number.to_be_bytes();
        let mut field = [0; 12];
        // The page fixes the first four bits.
        field[..6].copy_from_slice(&[t3 & 0xf0 | high & 0x0f, low, last, a, b, 200]);
        MessageId::from_page(page, PageField(field))
    });
    let now = UnixMillis::now();
    // Of an hour ago: they may be evicted by now.
    let at = UnixMillis(now.0 - 3_600_000);
    let early = Some(EarlyRecall { accepted_at: at, keep_until: now.plus_seconds(86_400) });
    let recall = Recall { at, early };
    let recalls = stream::iter(made_up).map(|id| {
        let (attacker, recall) = (&attacker, &recall);
        async move { drop(ledger.recall(attacker, &id, recall).await.unwrap()) }
    });
    recalls.buffer_unordered(256).collect::<()>().await;

    // The page works as others do.
    let recalled = Recall { at: now, early: recall.early };
    let outcome = ledger.recall(&quiet, &victim, &recalled).await.unwrap();
    assert!(matches!(outcome, RecallOutcome::Recalled(_)), "{outcome:?}");
    let begun = ledger.begin(&entry_of(&quiet, victim)).await.unwrap().unwrap();
    assert_eq!(begun.recalled_at, Some(now), "the worker learns of the recall");
    assert_eq!(ledger.begin(&entry_of(&quiet, victim)).await.unwrap().unwrap(), begun);
    assert_eq!(neighbour.page_and_field(AppTag::of(&quiet)).0, page);
    finish(ledger, &quiet, neighbour).await;
    let entry = ledger.entry(&quiet, &neighbour).await.unwrap().unwrap();
    assert!(entry.is_closed() && entry.outcomes.sent == 1, "{entry:?}");

    let bytes = measure(ledger).await;
    let mut round = ledger.keep_within(bytes / 4 * 3, now).await.unwrap();
    for _ in 0..200 {
        if round.more {
            round = ledger.keep_within(bytes / 4 * 3, now).await.unwrap();
        }
    }
    let history = round.history;
    assert!(history.bytes <= bytes / 4 * 3, "{history:?} of {bytes}");
    assert_eq!(kept(ledger, &quiet, &of_quiet).await, of_quiet.len(), "{history:?}");
    let gone = history.evicted as f64 / MADE_UP as f64;
    assert!((0.15..0.5).contains(&gone), "{gone} of what was made up is gone");
}

pub(crate) async fn an_app_sees_no_entry_of_an_earlier_one_of_its_name(ledger: &dyn Ledger) {
    // The checksum of an id says the name alone, so this id passes for one of either app.
    let (earlier, later) = (key(), AppKey { generation: 1, ..key() });
    let (message, other) = (MessageId::issue_named(&app()), MessageId::issue_named(&app()));
    finish(ledger, &earlier, message).await;
    ledger.begin(&entry_of(&earlier, other)).await.unwrap();
    for id in [&message, &other] {
        assert_eq!(ledger.entry(&later, id).await.unwrap(), None);
        assert_eq!(ledger.partition(&later, id, 0).await.unwrap(), None);
        let recall = Recall { at: UnixMillis::now(), early: None };
        let outcome = ledger.recall(&later, id, &recall).await.unwrap();
        assert_eq!(outcome, RecallOutcome::Unknown);
    }
    // Nor does what the later app does with the id change the entry of the earlier one.
    let now = UnixMillis::now();
    let early = Some(EarlyRecall { accepted_at: now, keep_until: now.plus_seconds(60) });
    let outcome = ledger.recall(&later, &other, &Recall { at: now, early }).await.unwrap();
    assert!(matches!(outcome, RecallOutcome::Recalled(_)), "{outcome:?}");
    let entry = ledger.entry(&earlier, &other).await.unwrap().unwrap();
    assert_eq!((entry.recalled_at, entry.dedup_nonce), (None, Some(0)));
    let begun = ledger.begin(&entry_of(&later, message)).await.unwrap().unwrap();
    assert!(!begun.is_closed(), "the later app's message is begun, not taken for a copy");
}
