//! Writes a backup into a file beside the one that was asked for, readable for its owner only. The file
//! gets its name when it is whole, on the disk, and was read back.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, BufWriter, ErrorKind, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use push_model::transfer::Registration;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::{
    check_new,
    format::{BLOCK_BYTES, Head, Kind, MAGIC, Tail, VERSION, write_device},
    read::Backup,
};

/// Reading and writing for the owner.
const OWNER: u32 = 0o600;
/// Follows the name of a file that is not whole.
const UNFINISHED: &str = ".part";

/// A backup that is being written. Dropped before it is finished, it leaves no file.
pub(super) struct BackupWriter {
    /// The unfinished file; none once it has its name.
    unfinished: Option<PathBuf>,
    file: PathBuf,
    out: BufWriter<File>,
    sum: Sha256,
    /// Devices that are not written yet.
    block: Vec<u8>,
    written: Written,
}

/// The size of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) devices: u64,
    pub(super) bytes: u64,
}

impl BackupWriter {
    /// Begins a file.
    ///
    /// # Errors
    /// If it exists, another program is writing it, or it cannot be written.
    pub(super) fn create(file: &Path, head: &Head) -> anyhow::Result<Self> {
        check_new(file)?;
        let mut name = OsString::from(file);
        name.push(UNFINISHED);
        let unfinished = PathBuf::from(name);
        let cannot = || format!("cannot write {}", unfinished.display());
        let locked = begin(&unfinished).with_context(cannot)?;
        let out = locked
            .with_context(|| format!("another backup is being written to {}", file.display()))?;
        let mut writer = Self {
            out: BufWriter::new(out),
            unfinished: Some(unfinished),
            file: file.to_owned(),
            sum: Sha256::new(),
            block: Vec::new(),
            written: Written::default(),
        };
        writer.put(format!("{MAGIC}{VERSION}\n").as_bytes())?;
        writer.put_json(Kind::Head, head)?;
        Ok(writer)
    }

    /// Adds a device.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn add(&mut self, device: &Registration) -> anyhow::Result<()> {
        write_device(device, &mut self.block)?;
        self.written.devices += 1;
        if self.block.len() >= BLOCK_BYTES { self.put_devices() } else { Ok(()) }
    }

    /// Completes the file and gives it its name. Returns how many devices a restoration will find in it.
    ///
    /// # Errors
    /// If it cannot be written, or there is one of that name by now.
    pub(super) fn finish(mut self) -> anyhow::Result<Written> {
        self.put_devices()?;
        self.put_json(Kind::Tail, &Tail { devices: self.written.devices })?;
        let sum = self.sum.clone().finalize();
        self.put(&sum)?;
        let cannot = format!("cannot write {}", self.file.display());
        self.out.flush().with_context(|| cannot.clone())?;
        self.out.get_ref().sync_all().with_context(|| cannot.clone())?;
        check_new(&self.file)?;
        if let Some(unfinished) = self.unfinished.take() {
            // Only a file that can be restored is a backup.
            match Backup::open(&unfinished) {
                Ok(backup) => self.written.devices = backup.devices(),
                Err(error) => {
                    self.unfinished = Some(unfinished);
                    return Err(error.context("what was written cannot be read back"));
                }
            }
            fs::rename(&unfinished, &self.file).with_context(|| cannot.clone())?;
        }
        let folder = self.file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or(Path::new(".")));
        folder.and_then(|folder| folder.sync_all()).context(cannot)?;
        Ok(self.written)
    }

    fn put_devices(&mut self) -> anyhow::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let block = std::mem::take(&mut self.block);
        self.put_block(Kind::Devices, &block)
    }

    fn put_json(&mut self, kind: Kind, value: &impl Serialize) -> anyhow::Result<()> {
        self.put_block(kind, &serde_json::to_vec(value)?)
    }

    fn put_block(&mut self, kind: Kind, content: &[u8]) -> anyhow::Result<()> {
        let packed = lz4_flex::block::compress(content);
        self.put(&[kind.letter()])?;
        for length in [content.len(), packed.len()] {
            self.put(&u32::try_from(length)?.to_be_bytes())?;
        }
        self.put(&packed)
    }

    fn put(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.sum.update(bytes);
        self.written.bytes += bytes.len() as u64;
        let written = self.out.write_all(bytes);
        written.with_context(|| format!("cannot write {}", self.file.display()))
    }
}

/// Makes the unfinished file, and replaces one that an ended program left: a file that is being written is
/// locked. Returns none if another program writes it.
fn begin(unfinished: &Path) -> io::Result<Option<File>> {
    let is_busy = |error: &TryLockError| matches!(error, TryLockError::WouldBlock);
    // Only a file: a link is not followed, and opening a pipe would wait for its reader.
    let is_file = fs::symlink_metadata(unfinished).is_ok_and(|found| found.is_file());
    let abandoned = if is_file { File::open(unfinished).ok() } else { None };
    if let Some(Err(error)) = abandoned.as_ref().map(File::try_lock)
        && is_busy(&error)
    {
        return Ok(None);
    }
    match fs::remove_file(unfinished) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A new file, so that its permissions are these from the beginning.
    let new = OpenOptions::new().write(true).create_new(true).mode(OWNER).open(unfinished);
    let new = match new {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
        new => new?,
    };
    match new.try_lock() {
        // Another program has taken it for one that was left.
        Err(error) if is_busy(&error) => Ok(None),
        locked => locked.map(|()| Some(new)).map_err(Into::into),
    }
}

impl Drop for BackupWriter {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            // If it stays, the next backup to this name replaces it.
            let _ = fs::remove_file(unfinished);
        }
    }
}
