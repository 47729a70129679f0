//! Reading a backup. The whole file is checked first, so nothing of a damaged one is restored.

use std::{
    fs::File,
    io::{self, BufReader, ErrorKind, Read, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, anyhow, bail, ensure};
use async_trait::async_trait;
use push_model::transfer::{Position, Registration};
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use super::format::{
    BLOCK_HEAD, Head, Kind, MAGIC, MAX_BLOCK, MAX_FIRST_LINE, SUM, Tail, VERSION, read_devices,
};
use crate::transfer::source::{Batch, Source};

/// Devices of one batch come from at most so many blocks.
const BATCH_BLOCKS: usize = 4;

/// A backup that was checked.
pub(super) struct Backup {
    pub(super) head: Head,
    /// The sum of the file, in hexadecimal digits: it tells the backup from others.
    pub(super) sum: String,
    path: PathBuf,
    devices: u64,
    /// The blocks of devices, by the offsets at which they begin.
    blocks: Vec<u64>,
    file: Mutex<File>,
}

/// Reads a file from its start to its end, and adds up what it read.
struct Checker<R> {
    input: R,
    sum: Sha256,
    offset: u64,
}

impl<R: Read> Checker<R> {
    fn take(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.input.read_exact(bytes)?;
        self.sum.update(&*bytes);
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

impl Backup {
    /// Opens a file and checks all of it.
    ///
    /// # Errors
    /// If it cannot be read, is no backup, is of a newer version, or is damaged.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
        let kept = file.try_clone().with_context(|| format!("cannot read {name}"))?;
        let input = BufReader::new(file);
        let mut checker = Checker { input, sum: Sha256::new(), offset: 0 };
        check_version(&mut checker, path)?;
        let checked = check_blocks(&mut checker).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::InvalidData => {
                anyhow!("{name} is damaged: nothing of it was restored ({error})")
            }
            _ => anyhow!(error).context(format!("cannot read {name}")),
        })?;
        let Checked { head, devices, blocks, sum } = checked;
        ensure!(head.is_storable(), "{name} holds numbers of an app that no store can keep");
        Ok(Self { head, sum, path: path.to_owned(), devices, blocks, file: Mutex::new(kept) })
    }

    fn devices_at(&self, offset: u64) -> anyhow::Result<Vec<Registration>> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = || format!("{} has changed or cannot be read any more", self.path.display());
        file.seek(SeekFrom::Start(offset)).with_context(changed)?;
        let mut checker = Checker { input: &mut *file, sum: Sha256::new(), offset: 0 };
        let (kind, content) = next_block(&mut checker).with_context(changed)?;
        match read_devices(&content) {
            Some(devices) if kind == Kind::Devices => Ok(devices),
            _ => bail!(changed()),
        }
    }
}

#[async_trait]
impl Source for Backup {
    fn count(&self) -> u64 {
        self.devices
    }

    async fn batch(&self, from: Position) -> anyhow::Result<Batch> {
        let first = from.slot as usize;
        let mut devices = Vec::new();
        let offsets = self.blocks.iter().skip(first).take(BATCH_BLOCKS);
        for offset in offsets {
            devices.extend(self.devices_at(*offset)?);
        }
        let next = first.saturating_add(BATCH_BLOCKS);
        let next = u32::try_from(next).ok().filter(|_| next < self.blocks.len());
        Ok(Batch { devices, unreadable: 0, next: next.map(|slot| Position { shard: 0, slot }) })
    }
}

fn check_version(checker: &mut Checker<impl Read>, path: &Path) -> anyhow::Result<()> {
    let no_backup = || anyhow!("{} is no backup of an app", path.display());
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        if line.len() == MAX_FIRST_LINE || checker.take(&mut byte).is_err() {
            return Err(no_backup());
        }
        line.extend(byte);
    }
    let line = str::from_utf8(&line).ok().and_then(|line| line.trim_end().strip_prefix(MAGIC));
    match line.and_then(|version| version.parse::<u32>().ok()).ok_or_else(no_backup)? {
        VERSION => Ok(()),
        newer => bail!(
            "{} is of version {newer}, and this pushctl reads version {VERSION}: restore it with a newer \
             pushctl",
            path.display()
        ),
    }
}

struct Checked {
    head: Head,
    devices: u64,
    blocks: Vec<u64>,
    sum: String,
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}

fn check_blocks(checker: &mut Checker<impl Read>) -> io::Result<Checked> {
    let (Kind::Head, content) = next_block(checker)? else {
        return Err(damaged("the app is not where it must be"));
    };
    let head: Head = json(&content)?;
    let (mut devices, mut blocks) = (0, Vec::new());
    let tail: Tail = loop {
        let offset = checker.offset;
        match next_block(checker)? {
            (Kind::Devices, content) => {
                let read =
                    read_devices(&content).ok_or_else(|| damaged("a device is unreadable"))?;
                devices += read.len() as u64;
                blocks.push(offset);
            }
            (Kind::Tail, content) => break json(&content)?,
            (Kind::Head, _) => return Err(damaged("there is a second app")),
        }
    };
    let expected = checker.sum.clone().finalize();
    let mut sum = [0; SUM];
    checker.input.read_exact(&mut sum)?;
    if expected[..] != sum {
        return Err(damaged("its sum is another one"));
    }
    if checker.input.read(&mut [0])? > 0 {
        return Err(damaged("something is behind its end"));
    }
    if tail.devices != devices {
        return Err(damaged("it has another number of devices"));
    }
    Ok(Checked { head, devices, blocks, sum: hex::encode(sum) })
}

/// The kind and the content of the next block.
fn next_block(checker: &mut Checker<impl Read>) -> io::Result<(Kind, Vec<u8>)> {
    let mut block_head = [0; BLOCK_HEAD];
    checker.take(&mut block_head)?;
    let [letter, a, b, c, d, e, f, g, h] = block_head;
    let kind = Kind::of(letter).ok_or_else(|| damaged("a block is of no known kind"))?;
    let (length, packed) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
    let (length, packed) = (length as usize, packed as usize);
    if length > MAX_BLOCK || packed > lz4_flex::block::get_maximum_output_size(MAX_BLOCK) {
        return Err(damaged("a block is too long"));
    }
    let mut bytes = vec![0; packed];
    checker.take(&mut bytes)?;
    let content = lz4_flex::block::decompress(&bytes, length);
    match content {
        Ok(content) if content.len() == length => Ok((kind, content)),
        _ => Err(damaged("a block cannot be unpacked")),
    }
}

fn json<T: DeserializeOwned>(content: &[u8]) -> io::Result<T> {
    serde_json::from_slice(content).map_err(|_| damaged("a block is unreadable"))
}
