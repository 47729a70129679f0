//! The promises of the store, each test with a file of its own.

use std::{path::PathBuf, time::Duration};

use rusqlite::Connection;
use tempfile::TempDir;

use super::*;

const NOTES: Schema = Schema {
    purpose: "note book",
    application_id: 77,
    migrations: &["CREATE TABLE note (text TEXT UNIQUE)"],
};

fn file(dir: &TempDir) -> PathBuf {
    dir.path().join("made/notes.sqlite3")
}

fn open(dir: &TempDir) -> Database {
    Database::open(&file(dir), &NOTES, StoreSettings::default()).unwrap()
}

async fn add(database: &Database, text: &str) -> Result<(), StoreError> {
    let text = text.to_owned();
    database
        .write(move |sql| {
            sql.execute("INSERT INTO note VALUES (?1)", [text])?;
            Ok(())
        })
        .await
}

async fn count(database: &Database) -> i64 {
    database
        .read(|sql| Ok(sql.query_row("SELECT count(*) FROM note", [], |row| row.get(0))?))
        .await
        .unwrap()
}

#[tokio::test]
async fn what_was_answered_is_there_after_reopening() {
    let dir = TempDir::new().unwrap();
    let database = open(&dir);
    add(&database, "a").await.unwrap();
    database.close().await;
    assert!(matches!(add(&database, "b").await, Err(StoreError::Closed)));
    assert_eq!(count(&open(&dir)).await, 1);
}

#[tokio::test]
async fn a_write_that_fails_does_not_spoil_the_others_of_its_commit() {
    let dir = TempDir::new().unwrap();
    let database = open(&dir);
    let writes = (0..200).map(|i| {
        let database = database.clone();
        async move { add(&database, &format!("{}", i % 100)).await.is_ok() }
    });
    let good = futures::future::join_all(writes).await.into_iter().filter(|ok| *ok).count();
    assert_eq!(good, 100, "of every two equal notes one is refused");
    assert_eq!(count(&database).await, 100);
}

#[tokio::test]
async fn what_a_failed_write_did_before_is_undone() {
    let dir = TempDir::new().unwrap();
    let database = open(&dir);
    let result: Result<(), StoreError> = database
        .write(|sql| {
            sql.execute("INSERT INTO note VALUES ('half')", [])?;
            Err(StoreError::Unreadable("later".to_owned()))
        })
        .await;
    assert!(matches!(result, Err(StoreError::Unreadable(_))));
    assert_eq!(count(&database).await, 0);
}

#[tokio::test]
async fn a_full_disk_is_an_error_and_writing_goes_on_when_there_is_room() {
    let dir = TempDir::new().unwrap();
    let database = open(&dir);
    let pages = |limit: u32| {
        let database = database.clone();
        async move {
            let set = move |sql: &Connection| {
                let read = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
                Ok(sql.pragma_update_and_check(None, "max_page_count", limit, read)?)
            };
            database.write(set).await.unwrap()
        }
    };
    pages(10).await;
    let big = "x".repeat(1 << 20);
    assert!(matches!(add(&database, &big).await, Err(StoreError::Full(_))));
    pages(1_000_000).await;
    add(&database, &big).await.unwrap();
    assert_eq!(count(&database).await, 1);
}

#[tokio::test]
async fn the_check_for_writes_takes_room_on_the_disk_and_changes_nothing() {
    let dir = TempDir::new().unwrap();
    let database = open(&dir);
    let log = dir.path().join("made/notes.sqlite3-wal");
    let before = std::fs::metadata(&log).unwrap().len();
    database.takes_writes().await.unwrap();
    assert!(std::fs::metadata(&log).unwrap().len() > before, "nothing was written");
    database.close().await;
    assert!(matches!(database.takes_writes().await, Err(StoreError::Closed)));
    assert_eq!(count(&open(&dir)).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_writer_does_not_keep_another_one_out() {
    let dir = TempDir::new().unwrap();
    let (busy, other) = (open(&dir), open(&dir));
    let stop = tokio_util::sync::CancellationToken::new();
    // A slow write is always waiting, so the file is unlocked for microseconds only.
    let floods: Vec<_> = (0..8)
        .map(|_| {
            let (busy, stop) = (busy.clone(), stop.clone());
            tokio::spawn(async move {
                while !stop.is_cancelled() {
                    let slow = |_: &Connection| {
                        std::thread::park_timeout(Duration::from_millis(10));
                        Ok(())
                    };
                    busy.write(slow).await.unwrap();
                }
            })
        })
        .collect();
    for i in 0..5 {
        let note = format!("other {i}");
        let turn = tokio::time::timeout(Duration::from_secs(1), add(&other, &note)).await;
        turn.expect("it waits for several commits at most").unwrap();
    }
    stop.cancel();
    for flood in floods {
        flood.await.unwrap();
    }
}

#[test]
fn many_can_open_a_new_file_at_once() {
    let dir = TempDir::new().unwrap();
    std::thread::scope(|scope| {
        let opened: Vec<_> = (0..8).map(|_| scope.spawn(|| open(&dir))).collect();
        for database in opened {
            assert_eq!(database.join().unwrap().path(), file(&dir));
        }
    });
}

fn error_of(path: &std::path::Path, schema: &Schema) -> StoreError {
    Database::open(path, schema, StoreSettings::default()).unwrap_err()
}

#[test]
fn a_newer_schema_is_refused_and_left_alone() {
    let dir = TempDir::new().unwrap();
    drop(open(&dir));
    Connection::open(file(&dir)).unwrap().pragma_update(None, "user_version", 9).unwrap();
    let error = error_of(&file(&dir), &NOTES);
    assert!(matches!(error, StoreError::Newer { found: 9, known: 1, .. }), "{error:?}");
    assert!(error.to_string().contains("newer version"), "{error}");
}

#[test]
fn an_older_schema_is_migrated_and_keeps_its_content() {
    const LATER: Schema = Schema {
        migrations: &[NOTES.migrations[0], "ALTER TABLE note ADD COLUMN author TEXT"],
        ..NOTES
    };
    let dir = TempDir::new().unwrap();
    drop(open(&dir));
    Connection::open(file(&dir)).unwrap().execute("INSERT INTO note VALUES ('a')", []).unwrap();
    drop(Database::open(&file(&dir), &LATER, StoreSettings::default()).unwrap());
    let (text, author): (String, Option<String>) = Connection::open(file(&dir))
        .unwrap()
        .query_row("SELECT * FROM note", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert_eq!((text.as_str(), author), ("a", None));
}

#[test]
fn a_file_of_another_program_is_refused_and_left_alone() {
    let dir = TempDir::new().unwrap();
    let other = dir.path().join("other.sqlite3");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE mine (x)").unwrap();
    let text = dir.path().join("text");
    std::fs::write(&text, "This is no database at all, just some lines of text.".repeat(100))
        .unwrap();
    for path in [&other, &text] {
        let before = std::fs::read(path).unwrap();
        let error = error_of(path, &NOTES);
        assert!(matches!(error, StoreError::Foreign { .. }), "{error:?}");
        assert!(error.to_string().contains("is not the file of a note book"), "{error}");
        assert!(std::fs::read(path).unwrap() == before, "the file is changed");
    }
}

#[test]
fn a_path_that_cannot_be_written_is_a_clear_error() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    // A directory inside a file, a directory that no user may write in, and a directory itself.
    let inside_file = error_of(&dir.path().join("file/queue.sqlite3"), &NOTES);
    assert!(inside_file.to_string().starts_with("cannot write in the directory"));
    let forbidden = error_of("/proc/queue.sqlite3".as_ref(), &NOTES);
    assert_eq!(forbidden.to_string(), "cannot write in the directory /proc");
    let directory = error_of(dir.path(), &NOTES);
    assert!(matches!(directory, StoreError::IsDirectory { .. }), "{directory:?}");
}

#[tokio::test]
async fn a_reader_is_in_use_for_as_long_as_a_read_runs() {
    let dir = TempDir::new().unwrap();
    let database = open(&dir);
    let limit = StoreSettings::default().readers;
    assert_eq!(database.readers(), ReaderUse { in_use: 0, limit });
    let inside = database.clone();
    let seen = database.read(move |_| Ok(inside.readers())).await.unwrap();
    assert_eq!(seen, ReaderUse { in_use: 1, limit });
    assert_eq!(database.readers(), ReaderUse { in_use: 0, limit });
}
