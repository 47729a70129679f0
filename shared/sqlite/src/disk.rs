//! The space that a file takes, and the free space of its disk.

use std::{fs, io, path::Path};

use super::Database;

/// A file and its disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUse {
    /// The file and its write-ahead log.
    pub file: u64,
    /// The free space of the disk for programs other than root's.
    pub free: u64,
}

impl Database {
    /// Measures the file and its disk.
    ///
    /// # Errors
    /// If the file cannot be looked at.
    pub fn disk_use(&self) -> io::Result<DiskUse> {
        disk_use(self.path())
    }
}

fn disk_use(path: &Path) -> io::Result<DiskUse> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    // The log is absent while no program has the file open.
    let log = fs::metadata(log).map_or(0, |log| log.len());
    let file = fs::metadata(path)?.len().saturating_add(log);
    let disk = rustix::fs::statvfs(path)?;
    Ok(DiskUse { file, free: disk.f_bavail.saturating_mul(disk.f_frsize) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_as_large_as_it_is_with_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.sqlite3");
        assert!(disk_use(&path).is_err());
        fs::write(&path, [0; 4096]).unwrap();
        assert_eq!(disk_use(&path).unwrap().file, 4096);
        fs::write(dir.path().join("store.sqlite3-wal"), [0; 100]).unwrap();
        let DiskUse { file, free } = disk_use(&path).unwrap();
        assert_eq!(file, 4196);
        assert!(free > 0);
    }
}
