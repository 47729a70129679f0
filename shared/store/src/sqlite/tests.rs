use push_queue::sqlite::{SqliteQueue, SqliteQueueSettings};
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::Level;

async fn open(file: &Path) -> Result<SqliteStore, IndexError> {
    SqliteStore::open(file, "test", StoreSettings::default()).await
}

#[tokio::test]
async fn a_queue_file_or_a_newer_one_is_refused() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("index.sqlite3");
    drop(open(&file).await.unwrap());
    Connection::open(&file).unwrap().pragma_update(None, "user_version", 1_000).unwrap();
    let error = open(&file).await.unwrap_err();
    assert!(error.to_string().contains("newer version"), "{error}");

    let queue = dir.path().join("queue.sqlite3");
    SqliteQueue::open(&queue, "test", SqliteQueueSettings::default()).await.unwrap();
    let error = open(&queue).await.unwrap_err();
    assert!(error.to_string().contains("is not the file of a push index"), "{error}");
}

#[tokio::test]
async fn the_doctor_sees_a_durable_file() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir.path().join("index.sqlite3")).await.unwrap();
    let findings = inspect(&store.database).await.unwrap();
    assert!(findings.iter().all(|finding| finding.level == Level::Ok), "{findings:?}");
    let of = |subject| findings.iter().find(|f| f.subject == subject).unwrap().detail.clone();
    assert_eq!(of("journal mode"), "wal");
    assert!(of("synchronous").starts_with("full"));
    assert!(of("sqlite version").starts_with('3'));
}
