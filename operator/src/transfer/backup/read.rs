//! Reads a backup. The whole file is checked first, so nothing of a damaged one is restored. The blocks
//! that are read after that must be those that were checked.

use std::{
    fs::{self, File},
    hash::{BuildHasher as _, RandomState},
    io::{self, BufReader, ErrorKind, Read, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, anyhow, bail, ensure};
use async_trait::async_trait;
use push_model::transfer::{Position, Registration};
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use super::{
    format::{
        BLOCK_HEAD, Head, Kind, MAGIC, MAX_BLOCK, MAX_FIRST_LINE, SUM, Tail, VERSION, read_devices,
    },
    repeats::{Hashes, Repeats},
};
use crate::transfer::source::{Batch, Source};

/// Devices of one batch come from at most this many blocks.
const BATCH_BLOCKS: usize = 4;

/// A backup that was checked.
pub(super) struct Backup {
    pub(super) head: Head,
    /// The sum of the file, in hexadecimal digits: it tells the backup from others.
    pub(super) sum: String,
    path: PathBuf,
    devices: u64,
    blocks: Vec<Block>,
    keys: RandomState,
    repeats: Repeats,
    file: Mutex<File>,
}

/// A block of devices.
#[derive(Debug, Clone, Copy)]
struct Block {
    /// Its position in the file.
    offset: u64,
    /// The hash of its content.
    hash: u64,
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
    /// If it cannot be read, is no regular file, is no backup, is of a newer version, or is damaged.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let about = fs::metadata(path).with_context(|| format!("cannot read {name}"))?;
        // It is read more than once, and opening a named pipe waits for a writer.
        ensure!(about.is_file(), "{name} is no regular file: write the backup to a file first");
        let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
        let kept = file.try_clone().with_context(|| format!("cannot read {name}"))?;
        let input = BufReader::new(file);
        let mut checker = Checker { input, sum: Sha256::new(), offset: 0 };
        check_version(&mut checker, path)?;
        let keys = RandomState::new();
        let checked = check_blocks(&mut checker, &keys).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::InvalidData => {
                anyhow!("{name} is damaged: nothing of it was restored ({error})")
            }
            _ => anyhow!(error).context(format!("cannot read {name}")),
        })?;
        let Checked { head, devices, blocks, hashes, sum } = checked;
        ensure!(head.is_storable(), "{name} holds numbers of an app that no store can keep");
        let (path, file, repeats) = (path.to_owned(), Mutex::new(kept), Repeats::default());
        let mut backup = Self { head, sum, path, devices, blocks, keys, repeats, file };
        backup.find_repeats(hashes)?;
        Ok(backup)
    }

    fn find_repeats(&mut self, hashes: Hashes) -> anyhow::Result<()> {
        let mut suspects = hashes.suspects();
        if !suspects.is_empty() {
            for (number, block) in self.blocks.iter().enumerate() {
                suspects.look(number, &self.devices_at(*block)?);
            }
        }
        self.repeats = suspects.repeats();
        self.devices -= self.repeats.records;
        Ok(())
    }

    pub(super) fn devices(&self) -> u64 {
        self.devices
    }

    fn devices_at(&self, Block { offset, hash }: Block) -> anyhow::Result<Vec<Registration>> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = || format!("{} has changed or cannot be read any more", self.path.display());
        file.seek(SeekFrom::Start(offset)).with_context(changed)?;
        let mut checker = Checker { input: &mut *file, sum: Sha256::new(), offset: 0 };
        let (kind, content) = next_block(&mut checker).with_context(changed)?;
        match read_devices(&content) {
            Some(devices) if kind == Kind::Devices && self.keys.hash_one(&content) == hash => {
                Ok(devices)
            }
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
        for (number, block) in self.blocks.iter().enumerate().skip(first).take(BATCH_BLOCKS) {
            let mut of_block = self.devices_at(*block)?;
            self.repeats.leave_out(number, &mut of_block);
            devices.extend(of_block);
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
    blocks: Vec<Block>,
    hashes: Hashes,
    sum: String,
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}

fn check_blocks(checker: &mut Checker<impl Read>, keys: &RandomState) -> io::Result<Checked> {
    let (Kind::Head, content) = next_block(checker)? else {
        return Err(damaged("the app is not where it must be"));
    };
    let head: Head = json(&content)?;
    let (mut devices, mut blocks, mut hashes) = (0, Vec::new(), Hashes::default());
    let tail: Tail = loop {
        let offset = checker.offset;
        match next_block(checker)? {
            (Kind::Devices, content) => {
                let read =
                    read_devices(&content).ok_or_else(|| damaged("a device is unreadable"))?;
                devices += read.len() as u64;
                read.iter().for_each(|one| hashes.add(&one.device.client_id));
                blocks.push(Block { offset, hash: keys.hash_one(&content) });
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
    Ok(Checked { head, devices, blocks, hashes, sum: hex::encode(sum) })
}

/// Reads the kind and the content of the next block.
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
