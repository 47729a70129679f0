//! The form of an entry follows what it has.

use super::*;

#[tokio::test]
async fn an_entry_moves_to_the_form_that_it_fits_into() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir).await;
    for (message, table) in [(issued(), "finished"), (derived(1), "finished_derived")] {
        let entry = index.begin(&named_push(message)).await.unwrap();
        assert_eq!(rows(&dir), [("begun", 1)]);
        let entry = advance(&index, &entry, &put_off(&entry)).await;
        assert_eq!((entry.pending(), entry.partition(0).leftovers.len()), (1, 1));
        assert_eq!(rows(&dir), [("message", 1), ("partition", 1)]);
        let mut last = step(&entry, 0, PartitionState::ENDED);
        (last.counts.targeted, last.leftovers) = (0, Some(Vec::new()));
        let closed = advance(&index, &entry, &last).await;
        assert_eq!((closed.outcomes.sent, closed.is_closed()), (2, true));
        assert_eq!(rows(&dir), [(table, 1)]);
        let (kept, sum) = bytes(&dir);
        assert_eq!(kept, sum);
        rounds(&index, 0, UnixMillis::now()).await;
        assert_eq!((rows(&dir), bytes(&dir)), (vec![], (0, 0)));
    }
    finish(&index, &broadcast(MessageId::issue(&app(), AudienceKind::Broadcast))).await;
    assert_eq!(rows(&dir), [("message", 1), ("partition", 8)]);
}

#[tokio::test]
async fn a_record_belongs_to_its_app() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir).await;
    let message = issued();
    let other: AppId = "other".parse().unwrap();
    let recall = Recall { at: UnixMillis::now(), early: None };
    let begun = index.begin(&named_push(message)).await.unwrap();
    for ended in [false, true] {
        if ended {
            advance(&index, &begun, &step(&begun, 0, PartitionState::ENDED)).await;
        }
        assert_eq!(index.entry(&other, &message).await.unwrap(), None);
        assert_eq!(index.partition(&other, &message, 0).await.unwrap(), None);
        let outcome = index.recall(&other, &message, &recall).await.unwrap();
        assert_eq!(outcome, RecallOutcome::Unknown);
        let entry = index.entry(&app(), &message).await.unwrap().unwrap();
        assert_eq!((entry.recalled_at, entry.is_closed()), (None, ended));
    }
}

#[tokio::test]
async fn the_sum_of_what_entries_take_is_kept_with_every_change() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir).await;
    for number in 0..20 {
        let message = if number % 2 == 0 { issued() } else { derived(number) };
        let of_kind = match number % 3 {
            0 => broadcast(message),
            _ => named_push(message),
        };
        if number % 5 == 0 {
            let early = EarlyRecall { accepted_at: UnixMillis(5), keep_until: UnixMillis::MAX };
            let recall = Recall { at: UnixMillis::now(), early: Some(early) };
            index.recall(&app(), &message, &recall).await.unwrap();
        }
        let entry = index.begin(&of_kind).await.unwrap();
        if number % 4 == 0 {
            advance(&index, &entry, &put_off(&entry)).await;
        } else if number % 7 != 0 {
            let recall = Recall { at: UnixMillis::now(), early: None };
            let closed = finish(&index, &of_kind).await;
            index.recall(&app(), &closed.message_id, &recall).await.unwrap();
        }
        let (kept, sum) = bytes(&dir);
        assert!(kept == sum && sum > 0, "{number}: {kept} is not {sum}");
    }
}

#[tokio::test]
async fn entries_of_an_earlier_version_stay_readable_and_go_in_their_turn() {
    let dir = TempDir::new().unwrap();
    let earlier = Schema { migrations: &schema::SCHEMA.migrations[..5], ..schema::SCHEMA };
    let database = Database::open(&file(&dir), &earlier, StoreSettings::default()).unwrap();
    let (done, sending) = (issued(), issued());
    let now = UnixMillis::now().0;
    let write = move |sql: &Connection| {
        for (row, message, sent) in [(1, done, 3), (2, sending, 2)] {
            let add = "INSERT INTO message (row, namespace, id, app, accepted_at, expires_at, copy,
                    keep_until, plan, targeted, outcomes)
                VALUES (?1, 'test', ?2, 'app', ?3, ?4, 7, ?5, '{\"strands\":[[]]}', 4, ?6)";
            let outcomes = format!(
                "{{\"sent\":{sent},\"failed\":{{\"gone\":1}},\"expired\":0,\"recalled\":0}}"
            );
            let later = bits(now + 3_600_000);
            let id = message.as_uuid().as_bytes();
            let with = rusqlite::params![row, id, bits(now), later, later, outcomes];
            schema::execute(sql, add, with)?;
            let add = "INSERT INTO partition VALUES (?1, 0, ?2, '[]')";
            schema::execute(
                sql,
                add,
                rusqlite::params![row, if sent == 3 { "end" } else { "- 1 0.4" }],
            )?;
        }
        Ok(())
    };
    database.write(write).await.unwrap();
    database.close().await;

    let index = open(&dir).await;
    let (kept, sum) = bytes(&dir);
    assert!(kept == sum && sum > 0, "{kept} is not {sum}");
    let entry = index.entry(&app(), &done).await.unwrap().unwrap();
    assert_eq!((entry.dedup_nonce, entry.targeted, entry.is_closed()), (Some(7), 4, true));
    let entry = index.entry(&app(), &sending).await.unwrap().unwrap();
    assert_eq!((entry.outcomes.sent, entry.pending(), entry.is_closed()), (2, 1, false));
    let mut last = step(&entry, 0, PartitionState::ENDED);
    last.counts.targeted = 0;
    assert!(advance(&index, &entry, &last).await.is_closed());
    assert_eq!(rows(&dir), [("finished", 1), ("message", 1), ("partition", 1)]);
    let history = rounds(&index, 0, UnixMillis(now)).await;
    assert_eq!((rows(&dir), history.evicted), (vec![], 2));
}
