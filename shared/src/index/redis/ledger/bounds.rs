//! Keeping the ledger within its bound.
//!
//! Redis forgets a page when the last of its entries may be, and does not say how much the pages
//! take. So each of the 256 parts of the ledger has lists of its pages in the order in which they were
//! begun. A round looks at the heads of all lists, takes names of pages off that Redis forgot,
//! measures some pages of each kind and counts the others as they are on average, and, if that is
//! too much, forgets what is closed of the oldest pages. What is open of them goes to the end of its
//! list as if it had begun now, so that it never stands before what may be forgotten.
//!
//! One program does a round at a time; the others read what it found.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use rand::{
    RngExt,
    seq::{IndexedRandom, SliceRandom},
};
use redis::{Cmd, Pipeline, Value};
use tracing::warn;

use super::rich;
use crate::{
    ids::{InPage, MessageId, Page, Window},
    index::{
        IndexError, LedgerBounds,
        redis::{
            RedisIndex,
            keys::{PARTS, listed_page, named_page},
            reply,
        },
    },
    ledger::{History, Round, may_be_forgotten, record},
    report,
    time::UnixMillis,
};

/// For how long other programs leave the ledger to the one that looked at it last.
const TURN: Duration = Duration::from_secs(5);

/// How many pages a round looks at from the head of each list.
const HEADS: usize = 8;

/// How many pages of a kind are measured, and entries with fields of a page.
const MEASURED: usize = 256;
const MEASURED_ENTRIES: usize = 8;

/// What a list takes for each page.
const LISTED: u64 = 20;

/// How many pages a round reads to forget them: some 50,000 entries at most.
const FORGOTTEN_PAGES: usize = 512;

/// How many entries with fields of a page a round reads.
const FORGOTTEN_ENTRIES: usize = 256;

/// What is open of a page is not looked at again for so long, if nothing could be forgotten.
const LOOKED_AT_AGAIN: Duration = Duration::from_mins(1);

/// Requests of a round that are under way at once.
const IN_FLIGHT: usize = 16;

/// A page of the ledger, as a list has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    /// When it was begun, or when what is open of it was left behind.
    begun: UnixMillis,
    /// The window of its ids; where they say nothing of it, the one in which the page was begun.
    window: Window,
    part: u8,
    kind: Kind,
    element: String,
    name: String,
}

/// What a page began with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Record,
    Fields,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Record, Self::Fields];
}

/// The lists of all parts.
#[derive(Debug, Default)]
struct Lists {
    /// How long they are.
    lengths: BTreeMap<(Kind, u8), u64>,
    /// Their heads, the oldest first.
    heads: Vec<Listed>,
    /// In a list whose whole head Redis forgot there may be more such pages.
    more: bool,
    /// Pages that are no younger are all among the heads; none if all pages are.
    seen: Option<UnixMillis>,
}

/// What a round forgot.
#[derive(Debug, Default)]
struct Forgotten {
    /// Pages that were looked at for it. What is open of them is at the end of the lists now.
    pages: usize,
    entries: u64,
    bytes: u64,
}

impl Listed {
    /// Reads what a list says of a page.
    fn read(kind: Kind, part: u8, element: &[u8]) -> Option<Self> {
        let element = std::str::from_utf8(element).ok()?.to_owned();
        let (begun, name) = listed_page(&element)?;
        let window = match named_page(part, name)? {
            Page::Shared(_, window, _) => window,
            Page::Own(_) => Window::of(begun),
        };
        let name = name.to_owned();
        Some(Self { begun, window, part, kind, element, name })
    }
}

impl RedisIndex {
    fn list(&self, kind: Kind, part: u8) -> String {
        let keys = self.keys.part(part);
        match kind {
            Kind::Record => keys.pages(),
            Kind::Fields => keys.rich_pages(),
        }
    }

    /// Asks each part what `commands` says, and gives the answers by part. A server that has all parts
    /// is asked for all at once; in a cluster each part is a request.
    async fn ask_parts(&self, commands: Vec<(u8, Cmd)>) -> Result<Vec<Value>, IndexError> {
        let numbered: Vec<(usize, (u8, Cmd))> = commands.into_iter().enumerate().collect();
        let requests: Vec<Vec<(usize, (u8, Cmd))>> = match self.bulk.is_cluster() {
            false => vec![numbered],
            true => {
                let mut parts: BTreeMap<u8, Vec<_>> = BTreeMap::new();
                for one in numbered {
                    parts.entry(one.1.0).or_default().push(one);
                }
                parts.into_values().collect()
            }
        };
        let count = requests.iter().map(Vec::len).sum();
        let ask = |request: Vec<(usize, (u8, Cmd))>| async move {
            let (numbers, commands): (Vec<_>, Vec<_>) = request.into_iter().unzip();
            let mut pipe = Pipeline::with_capacity(commands.len());
            for (_, command) in commands {
                pipe.add_command(command);
            }
            if pipe.is_empty() {
                return Ok(Vec::new());
            }
            let answers = self.bulk.read_all(&pipe).await?;
            Ok::<_, IndexError>(numbers.into_iter().zip(answers).collect())
        };
        let answers: Vec<Vec<(usize, Value)>> =
            stream::iter(requests).map(ask).buffer_unordered(IN_FLIGHT).try_collect().await?;
        let mut all = vec![Value::Nil; count];
        for (number, answer) in answers.into_iter().flatten() {
            all[number] = answer;
        }
        Ok(all)
    }

    /// Reads the lists, and takes off their heads what Redis forgot.
    async fn lists(&self) -> Result<Lists, IndexError> {
        let lists: Vec<(Kind, u8)> =
            Kind::ALL.into_iter().flat_map(|kind| PARTS.map(move |part| (kind, part))).collect();
        let ask = lists.iter().flat_map(|(kind, part)| {
            let list = self.list(*kind, *part);
            let (mut length, mut head) = (redis::cmd("LLEN"), redis::cmd("LRANGE"));
            length.arg(&list);
            head.arg(&list).arg(0).arg(HEADS - 1);
            [(*part, length), (*part, head)]
        });
        let mut answers = self.ask_parts(ask.collect()).await?.into_iter();
        let (mut found, mut strange) = (Lists::default(), Vec::new());
        for (kind, part) in lists {
            let length = reply::number(answers.next().unwrap_or_default())?.unwrap_or(0);
            found.lengths.insert((kind, part), length);
            let before = found.heads.len();
            for element in reply::list(answers.next().unwrap_or_default())? {
                let element = reply::bytes(element)?.unwrap_or_default();
                match Listed::read(kind, part, &element) {
                    Some(page) => found.heads.push(page),
                    None => strange.push((self.list(kind, part), element)),
                }
            }
            let last = found.heads[before..].last().filter(|_| length > HEADS as u64);
            found.seen = found.seen.into_iter().chain(last.map(|page| page.begun)).min();
        }
        for (list, element) in strange {
            warn!(list, "what is no name of a page of the ledger is taken off a list of them");
            self.strike(&list, &element).await?;
        }
        let exist = found.heads.iter().map(|page| {
            let mut exists = redis::cmd("EXISTS");
            exists.arg(self.keys.part(page.part).page(&page.name));
            (page.part, exists)
        });
        let exist = self.ask_parts(exist.collect()).await?;
        let (mut there, mut gone) = (Vec::new(), Vec::new());
        for (page, exists) in found.heads.into_iter().zip(exist) {
            let list = if reply::number(exists)? == Some(0) { &mut gone } else { &mut there };
            list.push(page);
        }
        let mut gone_of: BTreeMap<(Kind, u8), usize> = BTreeMap::new();
        for page in &gone {
            *gone_of.entry((page.kind, page.part)).or_default() += 1;
        }
        found.more = gone_of.values().any(|count| *count == HEADS);
        for (list, count) in gone_of {
            if let Some(length) = found.lengths.get_mut(&list) {
                *length = length.saturating_sub(count as u64);
            }
        }
        let strike = |page: Listed| async move {
            self.strike(&self.list(page.kind, page.part), page.element.as_bytes()).await
        };
        let strikes = stream::iter(gone).map(strike).buffer_unordered(IN_FLIGHT);
        strikes.try_for_each(async |()| Ok(())).await?;
        there.sort();
        found.heads = there;
        Ok(found)
    }

    /// Takes an element off a list.
    async fn strike(&self, list: &str, element: &[u8]) -> Result<(), IndexError> {
        let mut strike = redis::cmd("LREM");
        strike.arg(list).arg(1).arg(element);
        self.bulk.command(&strike).await?;
        Ok(())
    }

    /// The server's clock, which says when pages were begun.
    async fn clock(&self) -> Result<UnixMillis, IndexError> {
        let mut time = reply::list(self.bulk.read(&redis::cmd("TIME")).await?)?.into_iter();
        let seconds = reply::number(time.next().unwrap_or_default())?.unwrap_or(0);
        Ok(UnixMillis(seconds.saturating_mul(1000)))
    }

    /// What a page of this kind takes on average, from some of them, with their entries with fields.
    async fn measure(&self, kind: Kind, lists: &Lists) -> Result<u64, IndexError> {
        let parts: Vec<(u8, u64)> = PARTS
            .filter_map(|part| Some((part, *lists.lengths.get(&(kind, part))?)))
            .filter(|(_, length)| *length > 0)
            .collect();
        let places = some_of(&parts);
        if places.is_empty() {
            return Ok(0);
        }
        let ask = places.iter().map(|(part, at)| {
            let mut look = redis::cmd("LINDEX");
            look.arg(self.list(kind, *part)).arg(*at);
            (*part, look)
        });
        let elements = self.ask_parts(ask.collect()).await?;
        let mut pages = Vec::with_capacity(places.len());
        for ((part, _), element) in places.iter().zip(elements) {
            let element = reply::bytes(element)?.unwrap_or_default();
            let element = String::from_utf8_lossy(&element);
            let name = listed_page(&element).map(|(_, name)| name.to_owned());
            pages.extend(name.map(|name| (*part, name)));
        }
        let ask = pages
            .iter()
            .map(|(part, name)| (*part, memory_usage(&self.keys.part(*part).page(name))));
        let mut bytes: u64 = 0;
        for usage in self.ask_parts(ask.collect()).await? {
            bytes += reply::number(usage)?.unwrap_or(0);
        }
        // A page of records has entries with fields as well: of pushes that are tried again.
        bytes += self.measure_entries(&pages).await?;
        Ok(bytes / pages.len().max(1) as u64)
    }

    /// What the entries with fields of these pages take, from some of each.
    async fn measure_entries(&self, pages: &[(u8, String)]) -> Result<u64, IndexError> {
        let ask =
            pages.iter().map(|(part, name)| (*part, all_of(&self.keys.part(*part).page(name))));
        // Of each page how many entries it has, and how many of them are measured.
        let (mut counts, mut chosen) = (Vec::new(), Vec::new());
        for ((part, name), answer) in pages.iter().zip(self.ask_parts(ask.collect()).await?) {
            let Some(page) = named_page(*part, name) else { continue };
            let mut entries: Vec<String> = Vec::new();
            for (field, record) in records_of(answer)? {
                if record::is_stub(&record) {
                    entries.push(self.keys.message(&MessageId::at(page, field)).entry());
                }
            }
            entries.shuffle(&mut rand::rng());
            counts.push((entries.len(), entries.len().min(MEASURED_ENTRIES)));
            chosen.extend(entries.into_iter().take(MEASURED_ENTRIES).map(|entry| (*part, entry)));
        }
        let ask = chosen.into_iter().map(|(part, entry)| (part, memory_usage(&entry)));
        let mut usages = self.ask_parts(ask.collect()).await?.into_iter();
        let mut bytes = 0;
        for (entries, measured) in counts {
            let mut sum = 0;
            for usage in usages.by_ref().take(measured) {
                sum += reply::number(usage)?.unwrap_or(0);
            }
            bytes += sum * entries as u64 / measured.max(1) as u64;
        }
        Ok(bytes)
    }

    /// Forgets what is closed of the oldest of these pages, until so many bytes are free.
    async fn forget(
        &self,
        pages: &[&Listed],
        bytes: u64,
        now: UnixMillis,
    ) -> Result<Forgotten, IndexError> {
        let mut all = Forgotten::default();
        for pages in pages[..pages.len().min(FORGOTTEN_PAGES)].chunks(IN_FLIGHT) {
            if all.bytes >= bytes {
                break;
            }
            let ask = pages.iter().flat_map(|page| {
                let key = self.keys.part(page.part).page(&page.name);
                [(page.part, all_of(&key)), (page.part, memory_usage(&key))]
            });
            let mut answers = self.ask_parts(ask.collect()).await?.into_iter();
            for page in pages {
                if all.bytes >= bytes {
                    break;
                }
                let records = records_of(answers.next().unwrap_or_default())?;
                let usage = reply::number(answers.next().unwrap_or_default())?.unwrap_or(0);
                let (entries, of_entries) = self.forget_page(page, &records, now).await?;
                let count = records.len().max(1) as u64;
                all.bytes += of_entries + usage * entries.min(count) / count;
                all.entries += entries;
                all.pages += 1;
            }
        }
        Ok(all)
    }

    /// Forgets what is closed of a page: how many entries, and what those with fields took.
    async fn forget_page(
        &self,
        page: &Listed,
        records: &[(InPage, Vec<u8>)],
        now: UnixMillis,
    ) -> Result<(u64, u64), IndexError> {
        let named = named_page(page.part, &page.name).ok_or_else(wrong_name)?;
        let part = self.keys.part(page.part);
        let (mut closed, mut stubs) = (Vec::new(), Vec::new());
        let (mut rich, mut bytes) = (Vec::new(), 0);
        // What is asked later is when the id was issued, which may be a moment after the acceptance.
        let mut accepted = UnixMillis(0);
        for (field, record) in records {
            let message = MessageId::at(named, *field);
            let issued_at = message.time().unwrap_or_default();
            if !record::is_stub(record) {
                // One that cannot be read stays until its page is over.
                let Ok(front) = record::front(&message, record) else { continue };
                if front.state.is_ended() || now > front.expires_at.plus(report::REST) {
                    accepted = accepted.max(front.accepted_at).max(issued_at);
                    closed.push((field, record));
                }
                continue;
            }
            stubs.push((field, record, message, self.keys.message(&message).entry()));
        }
        // Ids can be made up, so a page can have any number of such entries.
        stubs.shuffle(&mut rand::rng());
        stubs.truncate(FORGOTTEN_ENTRIES);
        let asked = stubs
            .iter()
            .flat_map(|(_, _, _, key)| [(page.part, all_of(key)), (page.part, memory_usage(key))]);
        let mut answers = self.ask_parts(asked.collect()).await?.into_iter();
        for (field, record, message, key) in stubs {
            let (fields, usage) =
                (answers.next().unwrap_or_default(), answers.next().unwrap_or_default());
            let copy = match rich::read(&message, fields) {
                Ok(Some(entry)) if may_be_forgotten(&entry, now) => {
                    let issued_at = message.time().unwrap_or_default();
                    accepted = accepted.max(entry.accepted_at).max(issued_at);
                    entry.copy.map_or_else(String::new, |copy| copy.to_string())
                }
                Ok(None) => String::new(),
                Ok(Some(_)) | Err(_) => continue,
            };
            bytes += reply::number(usage)?.unwrap_or(0);
            rich.push((field, record, key, copy));
        }
        // No message was accepted later than now, whatever an id says.
        let accepted = accepted.min(now);
        let (page_key, list) = (part.page(&page.name), self.list(page.kind, page.part));
        let horizon = part.forgotten_until();
        let mut keys = vec![page_key.as_str(), &list, &horizon];
        keys.extend(rich.iter().map(|(_, _, key, _)| key.as_str()));
        let mut forget = self.scripts.forget.call(&keys);
        forget.arg(&page.element).arg(closed.len()).arg(accepted.0);
        for (field, record) in &closed {
            forget.arg(*field).arg(record.as_slice());
        }
        for (field, record, _, copy) in &rich {
            forget.arg(*field).arg(record.as_slice()).arg(copy);
        }
        let forgotten = reply::number(forget.run(&self.bulk).await?)?.unwrap_or(0);
        Ok((forgotten, bytes))
    }

    /// Whether it is this program's turn. A server that refuses writes, as a full one does, refuses
    /// that as well: then every program looks.
    async fn takes_turn(&self) -> Result<bool, IndexError> {
        let turn = self.keys.history_turn();
        let mut take = redis::cmd("SET");
        take.arg(&turn).arg(self.program).arg("NX").arg("PX").arg(TURN.as_millis() as u64);
        match self.bulk.command(&take).await.map_err(IndexError::from) {
            Ok(Value::Nil) => {}
            Ok(_) | Err(IndexError::Refused(_)) => return Ok(true),
            Err(error) => return Err(error),
        }
        let mut whose = redis::cmd("GET");
        whose.arg(&turn);
        Ok(reply::number(self.bulk.read(&whose).await?)? == Some(self.program))
    }

    async fn note(&self, history: &History, forgotten: u64) -> Result<u64, IndexError> {
        let key = self.keys.history();
        let mut note = redis::pipe();
        note.cmd("HINCRBY").arg(&key).arg("forgotten").arg(forgotten);
        note.cmd("HSET").arg(&key);
        let oldest = history.oldest.map_or(0, |oldest| oldest.0);
        for (field, number) in [
            ("at", history.measured_at.0),
            ("bytes", history.bytes),
            ("limit", history.limit),
            ("oldest", oldest),
        ] {
            note.arg(field).arg(number);
        }
        let answers = self.bulk.commands(&note).await?;
        Ok(reply::number(answers.into_iter().next().unwrap_or_default())?.unwrap_or(forgotten))
    }
}

/// Places in lists of these lengths: all, or so many by chance.
fn some_of(lists: &[(u8, u64)]) -> Vec<(u8, u64)> {
    let total: u64 = lists.iter().map(|(_, length)| length).sum();
    if total <= MEASURED as u64 {
        return lists
            .iter()
            .flat_map(|(part, length)| (0..*length).map(|at| (*part, at)))
            .collect();
    }
    let mut rng = rand::rng();
    let mut drawn = Vec::with_capacity(MEASURED);
    for _ in 0..MEASURED {
        if let Ok((part, length)) = lists.choose_weighted(&mut rng, |(_, length)| *length) {
            drawn.push((*part, rng.random_range(0..*length)));
        }
    }
    drawn
}

fn wrong_name() -> IndexError {
    IndexError::Corrupt("the name of a page of the ledger".to_owned())
}

/// Everything that a hash has.
fn all_of(key: &str) -> Cmd {
    let mut read = redis::cmd("HGETALL");
    read.arg(key);
    read
}

/// What a key takes, in bytes.
fn memory_usage(key: &str) -> Cmd {
    let mut usage = redis::cmd("MEMORY");
    usage.arg("USAGE").arg(key);
    usage
}

/// The records of a page by their fields.
fn records_of(page: Value) -> Result<Vec<(InPage, Vec<u8>)>, IndexError> {
    let mut values = reply::list(page)?.into_iter();
    let mut records = Vec::with_capacity(values.len() / 2);
    while let (Some(field), Some(record)) = (values.next(), values.next()) {
        let field = reply::bytes(field)?.unwrap_or_default();
        if let Ok(field) = field.try_into() {
            records.push((field, reply::bytes(record)?.unwrap_or_default()));
        }
    }
    Ok(records)
}

#[async_trait]
impl LedgerBounds for RedisIndex {
    async fn keep_within(&self, limit: u64, now: UnixMillis) -> Result<Round, IndexError> {
        if !self.takes_turn().await?
            && let Some(history) = self.history().await?
        {
            return Ok(Round { history, more: false });
        }
        let (clock, lists) = (self.clock().await?, self.lists().await?);
        let mut bytes = 0;
        for kind in Kind::ALL {
            let mean = self.measure(kind, &lists).await?;
            let pages = PARTS.filter_map(|part| lists.lengths.get(&(kind, part)));
            bytes += pages.sum::<u64>() * (mean + LISTED);
        }
        let over = bytes.saturating_sub(limit);
        let Forgotten { pages, entries, bytes: freed } = match over {
            0 => Forgotten::default(),
            _ => {
                let seen = |page: &&Listed| lists.seen.is_none_or(|seen| page.begun <= seen);
                let oldest: Vec<_> = lists.heads.iter().take_while(seen).collect();
                self.forget(&oldest, over, now).await?
            }
        };
        let oldest = lists.heads.get(pages).or(lists.heads.last());
        let oldest = oldest.map(|page| page.begun.min(page.window.next().start()));
        let bytes = bytes.saturating_sub(freed);
        let mut history = History { measured_at: now, bytes, limit, oldest, forgotten: entries };
        match self.note(&history, entries).await {
            Ok(forgotten) => history.forgotten = forgotten,
            // A server without memory lets entries be forgotten, and nothing be noted.
            Err(IndexError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
        // Open pages that were looked at stand at the end of the lists now, and others before them.
        let looked_at = lists.heads.get(..pages).and_then(<[Listed]>::last);
        let goes_on = looked_at.is_some_and(|page| clock.since(page.begun) > LOOKED_AT_AGAIN);
        let more = lists.more || (bytes > limit && (entries > 0 || goes_on));
        Ok(Round { history, more })
    }

    async fn history(&self) -> Result<Option<History>, IndexError> {
        let mut read = redis::cmd("HMGET");
        read.arg(self.keys.history()).arg(&["at", "bytes", "limit", "oldest", "forgotten"]);
        let mut values = reply::list(self.quick.read(&read).await?)?.into_iter();
        let mut next = || reply::number(values.next().unwrap_or_default());
        let (at, bytes, limit, oldest, forgotten) = (next()?, next()?, next()?, next()?, next()?);
        Ok(at.map(|at| History {
            measured_at: UnixMillis(at),
            bytes: bytes.unwrap_or(0),
            limit: limit.unwrap_or(0),
            oldest: oldest.filter(|oldest| *oldest > 0).map(UnixMillis),
            forgotten: forgotten.unwrap_or(0),
        }))
    }

    async fn forgotten_until(&self, message: &MessageId) -> Result<Option<UnixMillis>, IndexError> {
        let mut get = redis::cmd("GET");
        get.arg(self.keys.message(message).forgotten_until());
        Ok(reply::number(self.quick.read(&get).await?)?.map(UnixMillis))
    }
}
