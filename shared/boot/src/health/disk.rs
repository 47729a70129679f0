//! A check that a directory takes writes. Only a write finds a full disk, a quota that is used up and
//! a file system that became read-only; the free space does not tell.
//!
//! A disk that hangs holds the thread that writes to it, and nothing can end that thread. So there is one
//! write at a time: while it has not ended, a check says so and begins no other. Otherwise each check
//! would cost one more thread of the runtime, until nothing that needs one could run.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::sync::Semaphore;

use super::{Health, Need, PartName, PartState};

/// The bytes that a check writes: one page of a database, so that they take room of their own.
const PROBE: [u8; 4096] = [0; 4096];

/// Watches whether a directory takes writes, as the part `disk`.
pub fn watch_disk(health: &Health, dir: &Path) {
    let probe = DiskProbe::new(dir);
    let name = PartName::new("disk", "a-store-runs-out-of-memory-or-disk")
        .said(format!("the disk of {}", dir.display()));
    health.watch(name, Need::Required, move || probe.clone().check(write));
}

/// Checks of one directory; clones share the bound of one write at a time.
#[derive(Debug, Clone)]
struct DiskProbe {
    dir: PathBuf,
    writing: Arc<Semaphore>,
}

impl DiskProbe {
    fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), writing: Arc::new(Semaphore::new(1)) }
    }

    async fn check(
        self,
        write: impl FnOnce(&Path) -> io::Result<()> + Send + 'static,
    ) -> PartState {
        let Self { dir, writing } = self;
        let name = dir.display().to_string();
        let Ok(permit) = writing.try_acquire_owned() else {
            return PartState::Failed(format!(
                "{name}: the write of an earlier check has not ended"
            ));
        };
        let written = tokio::task::spawn_blocking(move || {
            let written = write(&dir);
            drop(permit);
            written
        });
        match written.await {
            Ok(Ok(())) => PartState::Ok,
            Ok(Err(error)) => PartState::Failed(format!("{name} cannot be written: {error}")),
            Err(error) => PartState::Failed(format!("{name} cannot be checked: {error}")),
        }
    }
}

/// Writes a file to the directory, to the disk itself, and removes it. The file has no name where
/// the system knows such files, so nothing is left of it even if the process is killed.
fn write(dir: &Path) -> io::Result<()> {
    let mut file = tempfile::tempfile_in(dir)?;
    file.write_all(&PROBE)?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_directory_that_takes_writes_has_nothing_in_it_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(DiskProbe::new(folder.path()).check(write).await, PartState::Ok);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn one_that_does_not_is_named_with_the_reason() {
        let PartState::Failed(why) = DiskProbe::new(Path::new("/nowhere")).check(write).await
        else {
            panic!("it does not exist")
        };
        assert!(why.starts_with("/nowhere cannot be written: "), "{why}");
    }

    #[tokio::test]
    async fn a_disk_that_hangs_holds_one_thread_however_often_it_is_checked() {
        let folder = tempfile::tempdir().unwrap();
        let probe = DiskProbe::new(folder.path());
        let (begun, has_begun) = mpsc::sync_channel(1);
        let (free, hangs) = mpsc::sync_channel::<()>(0);
        let hanging = probe.clone().check(move |_| {
            begun.send(()).unwrap();
            // Ends when the sender is dropped.
            let _ = hangs.recv();
            Ok(())
        });
        let hanging = tokio::spawn(hanging);
        tokio::task::spawn_blocking(move || has_begun.recv()).await.unwrap().unwrap();
        hanging.abort();
        assert!(hanging.await.unwrap_err().is_cancelled(), "its time is over");
        for _ in 0..3 {
            let checked = probe.clone().check(|_| panic!("a second write begins")).await;
            let PartState::Failed(why) = checked else { panic!("{checked:?}") };
            assert!(why.ends_with("has not ended"), "{why}");
        }
        drop(free);
        drop(probe.writing.acquire().await.unwrap());
        assert_eq!(probe.check(write).await, PartState::Ok);
    }
}
