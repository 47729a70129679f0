//! What the tests of this folder share.

use std::sync::Arc;

use push_index::{
    Index,
    sqlite::{SqliteIndex, SqliteIndexSettings},
};
use tempfile::TempDir;

/// A store in a file, without an app.
pub(super) async fn store() -> (Arc<dyn Index>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("index.sqlite3");
    let index = SqliteIndex::open(&file, "push", SqliteIndexSettings::default()).await.unwrap();
    (Arc::new(index), folder)
}
