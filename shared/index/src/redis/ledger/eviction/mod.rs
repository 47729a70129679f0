//! Keeping the ledger within its bound.
//!
//! Redis lets a page expire when the last of its entries may be evicted, and does not report how
//! much memory the pages take. So each of the 256 stripes of the ledger has lists of its pages in
//! the order in which they were begun. A round reads the heads of all lists, removes the names of
//! expired pages, measures a sample of pages of each kind, and takes the others to be average. If
//! the ledger is over its limit, the round evicts the closed entries of the oldest pages. A page
//! with open entries then goes to the end of its list as if it had begun now, so that it does not
//! stand before pages from which entries can be evicted.
//!
//! One program does a round at a time, under a lease; the others read what it measured.
//!
//! - [`lists`], [`measure`], [`evict`]: the steps of a round. [`stripes`]: requests to all stripes.
//! - [`marks`]: what is remembered of evicted entries.

mod evict;
mod lists;
mod marks;
mod measure;
mod stripes;

use std::time::Duration;

use async_trait::async_trait;
use push_model::{
    ids::MessageId,
    ledger::{EvictionRound, History},
    time::UnixMillis,
};
use redis::Value;

use self::{
    evict::Evicted,
    lists::{ListKind, ListedPage},
};
use crate::{
    IndexError, LedgerBounds,
    redis::{RedisIndex, connection::reply, keys::STRIPES},
};

/// How long the lease for measuring the ledger lasts.
const LEASE: Duration = Duration::from_secs(5);

/// The memory that a list takes for each page, in bytes.
const LIST_BYTES: u64 = 20;

/// For this long a page from which nothing could be evicted is no reason for another round:
/// otherwise rounds over pages with open entries would follow each other without a pause.
const OPEN_PAGE_PAUSE: Duration = Duration::from_mins(1);

impl RedisIndex {
    /// The time of the server's clock, by which the times in the lists were written.
    async fn clock(&self) -> Result<UnixMillis, IndexError> {
        let mut time = reply::list(self.bulk.read(&redis::cmd("TIME")).await?)?.into_iter();
        let seconds = reply::number(time.next().unwrap_or_default())?.unwrap_or(0);
        Ok(UnixMillis(seconds.saturating_mul(1000)))
    }

    /// Whether this program has the lease for measuring the ledger, which it acquires if it is
    /// free. A server that refuses writes, as one without memory does, refuses the lease as well:
    /// then every program measures.
    async fn acquire_measuring_lease(&self) -> Result<bool, IndexError> {
        let lease = self.keys.measuring_lease();
        let mut acquire = redis::cmd("SET");
        acquire.arg(&lease).arg(self.program).arg("NX").arg("PX").arg(LEASE.as_millis() as u64);
        match self.bulk.command(&acquire).await.map_err(IndexError::from) {
            Ok(Value::Nil) => {}
            Ok(_) | Err(IndexError::Refused(_)) => return Ok(true),
            Err(error) => return Err(error),
        }
        let mut holder = redis::cmd("GET");
        holder.arg(&lease);
        Ok(reply::number(self.bulk.read(&holder).await?)? == Some(self.program))
    }

    /// Stores what a round measured and evicted. Returns how many entries were evicted by all
    /// rounds.
    async fn note(&self, history: &History, evicted: u64) -> Result<u64, IndexError> {
        let key = self.keys.history();
        let mut note = redis::pipe();
        note.cmd("HINCRBY").arg(&key).arg("forgotten").arg(evicted);
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
        Ok(reply::number(answers.into_iter().next().unwrap_or_default())?.unwrap_or(evicted))
    }
}

#[async_trait]
impl LedgerBounds for RedisIndex {
    async fn keep_within(&self, limit: u64, now: UnixMillis) -> Result<EvictionRound, IndexError> {
        if !self.acquire_measuring_lease().await?
            && let Some(history) = self.history().await?
        {
            return Ok(EvictionRound { history, more: false });
        }
        let (clock, lists) = (self.clock().await?, self.lists().await?);
        let mut bytes = 0;
        for kind in ListKind::ALL {
            let mean = self.measure(kind, &lists).await?;
            let pages = STRIPES.filter_map(|stripe| lists.lengths.get(&(kind, stripe)));
            bytes += pages.sum::<u64>() * (mean + LIST_BYTES);
        }
        let over = bytes.saturating_sub(limit);
        let Evicted { pages, entries, bytes: freed } = match over {
            0 => Evicted::default(),
            _ => {
                let is_complete = |page: &&ListedPage| {
                    lists.complete_until.is_none_or(|until| page.begun <= until)
                };
                let oldest: Vec<_> = lists.heads.iter().take_while(is_complete).collect();
                self.evict(&oldest, over, now).await?
            }
        };
        let oldest = lists.heads.get(pages).or(lists.heads.last());
        let oldest = oldest.map(|page| page.begun.min(page.window.next().start()));
        let bytes = bytes.saturating_sub(freed);
        let mut history = History { measured_at: now, bytes, limit, oldest, evicted: entries };
        match self.note(&history, entries).await {
            Ok(evicted) => history.evicted = evicted,
            // A server without memory permits evictions and refuses to store what was measured.
            Err(IndexError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
        // Pages with open entries that were read are at the end of their lists now: another round
        // reads the pages that follow.
        let last_read = lists.heads.get(..pages).and_then(<[ListedPage]>::last);
        let goes_on = last_read.is_some_and(|page| clock.since(page.begun) > OPEN_PAGE_PAUSE);
        let more = lists.more || (bytes > limit && (entries > 0 || goes_on));
        Ok(EvictionRound { history, more })
    }

    async fn history(&self) -> Result<Option<History>, IndexError> {
        let mut read = redis::cmd("HMGET");
        read.arg(self.keys.history()).arg(&["at", "bytes", "limit", "oldest", "forgotten"]);
        let mut values = reply::list(self.quick.read(&read).await?)?.into_iter();
        let mut next = || reply::number(values.next().unwrap_or_default());
        let (at, bytes, limit, oldest, evicted) = (next()?, next()?, next()?, next()?, next()?);
        Ok(at.map(|at| History {
            measured_at: UnixMillis(at),
            bytes: bytes.unwrap_or(0),
            limit: limit.unwrap_or(0),
            oldest: oldest.filter(|oldest| *oldest > 0).map(UnixMillis),
            evicted: evicted.unwrap_or(0),
        }))
    }

    async fn evicted_until(&self, message: &MessageId) -> Result<Option<UnixMillis>, IndexError> {
        let mut get = redis::cmd("GET");
        get.arg(self.keys.message(message).evicted_until());
        Ok(reply::number(self.quick.read(&get).await?)?.map(UnixMillis))
    }

    async fn was_evicted(&self, message: &MessageId, dedup_nonce: u64) -> Result<bool, IndexError> {
        self.has_mark(message, dedup_nonce).await
    }
}
