//! The size of entries in the file.

use super::*;

/// Writes entries of finished pushes to one device, in one transaction.
async fn fill(ledger: &SqliteLedger, ids: Vec<MessageId>) {
    let ledger_id = ledger.ledger_id;
    let write = move |sql: &Connection| {
        for message in ids {
            let rows = LedgerRows::writing(sql, ledger_id, &key(), message, UnixMillis::now())?;
            let entry = rows.begin(&named_push(message))?.unwrap();
            rows.advance(&step(&entry, 0, PartitionState::ENDED))?;
        }
        Ok(())
    };
    ledger.database.write(write).await.unwrap();
}

#[tokio::test]
async fn what_the_ledger_says_it_takes_is_what_it_takes_in_the_file() {
    const COUNT: u64 = 10_000;
    let ids = |is_issued: bool| {
        let one = move |number| if is_issued { issued() } else { derived(number) };
        (0..COUNT as u32).map(one)
    };
    for (is_issued, most_each) in [(true, 42), (false, 135)] {
        let dir = TempDir::new().unwrap();
        let ledger = open(&dir).await;
        fill(&ledger, ids(is_issued).collect()).await;
        let said = ledger.keep_within(u64::MAX, UnixMillis::now()).await.unwrap().history.bytes;
        let pages = "SELECT sum(pgsize) FROM dbstat WHERE name IN
            ('finished', 'finished_derived', 'sqlite_autoindex_finished_derived_2',
                'finished_derived_at')";
        let sql = Connection::open(file(&dir)).unwrap();
        let taken = sql.query_row(pages, [], |row| row.get::<_, i64>(0)).unwrap() as u64;
        assert!(taken < COUNT * most_each, "{} bytes a push", taken / COUNT);
        assert!(said.abs_diff(taken) < taken / 10, "{said} said, {taken} taken");
    }
}

#[tokio::test]
async fn what_broadcasts_take_is_about_what_is_said() {
    const COUNT: u64 = 500;
    let dir = TempDir::new().unwrap();
    let ledger = open(&dir).await;
    let ledger_id = ledger.ledger_id;
    let write = move |sql: &Connection| {
        for _ in 0..COUNT {
            let message = MessageId::issue(&app(), AudienceKind::Broadcast);
            let rows = LedgerRows::writing(sql, ledger_id, &key(), message, UnixMillis::now())?;
            let entry = rows.begin(&broadcast(message))?.unwrap();
            for partition in 0..8 {
                rows.advance(&step(&entry, partition, PartitionState::ENDED))?;
            }
        }
        Ok(())
    };
    ledger.database.write(write).await.unwrap();
    let said = ledger.keep_within(u64::MAX, UnixMillis::now()).await.unwrap().history.bytes;
    let pages = "SELECT sum(pgsize) FROM dbstat WHERE name LIKE '%message%' OR name = 'partition'";
    let sql = Connection::open(file(&dir)).unwrap();
    let taken = sql.query_row(pages, [], |row| row.get::<_, i64>(0)).unwrap() as u64;
    assert!(said.abs_diff(taken) < taken / 10, "{said} said, {taken} taken");
}

#[tokio::test]
async fn freed_pages_are_used_again() {
    let dir = TempDir::new().unwrap();
    let ledger = open(&dir).await;
    let pages = || -> i64 {
        // Remembered evictions have a bound of their own.
        let entries = "SELECT page_count - (SELECT count(*) FROM dbstat WHERE name LIKE 'evicted%')
            FROM pragma_page_count";
        let sql = Connection::open(file(&dir)).unwrap();
        sql.query_row(entries, [], |row| row.get(0)).unwrap()
    };
    fill(&ledger, (0..5000).map(|_| issued()).collect()).await;
    let limit = ledger.keep_within(u64::MAX, UnixMillis::now()).await.unwrap().history.bytes;
    let full = pages();
    for _ in 0..4 {
        fill(&ledger, (0..1000).map(|_| issued()).collect()).await;
        let history = rounds(&ledger, limit, UnixMillis::now()).await;
        assert!(history.bytes <= limit);
    }
    assert!(pages() < full + full / 4, "{full} pages grew to {}", pages());
}
