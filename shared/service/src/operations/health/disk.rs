//! Whether a directory takes writes: a full disk, a quota that is used up and a file system that
//! became read-only are found by writing, not by asking how much is free.

use std::{
    io::{self, Write as _},
    path::Path,
};

use super::{Health, Need, State};

/// What is written: as much as one page of a database, so that it takes room of its own.
const PROBE: [u8; 4096] = [0; 4096];

/// Watches whether a directory takes writes, as the part `disk`.
pub fn watch_disk(health: &Health, dir: &Path) {
    let dir = dir.to_owned();
    health.watch("disk", Need::Required, move || {
        let dir = dir.clone();
        async move { disk_takes_writes(&dir).await }
    });
}

/// Writes a file to the directory, to the disk itself, and removes it. The file has no name where
/// the system knows such files, so nothing is left of it even if the process is killed.
pub async fn disk_takes_writes(dir: &Path) -> State {
    let dir = dir.to_owned();
    let written = tokio::task::spawn_blocking(move || write(&dir).map_err(|error| (dir, error)));
    match written.await {
        Ok(Ok(())) => State::Ok,
        Ok(Err((dir, error))) => {
            State::Failed(format!("{} cannot be written: {error}", dir.display()))
        }
        Err(error) => State::Failed(format!("cannot be checked: {error}")),
    }
}

fn write(dir: &Path) -> io::Result<()> {
    let mut file = tempfile::tempfile_in(dir)?;
    file.write_all(&PROBE)?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_directory_that_takes_writes_has_nothing_in_it_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(disk_takes_writes(folder.path()).await, State::Ok);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn one_that_does_not_is_named_with_the_reason() {
        let State::Failed(why) = disk_takes_writes(Path::new("/nowhere")).await else {
            panic!("it does not exist")
        };
        assert!(why.starts_with("/nowhere cannot be written: "), "{why}");
    }
}
