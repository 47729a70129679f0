//! Keeping the ledger within its bound.
//!
//! Redis lets a page expire when the last of its entries may be evicted, and does not report how
//! much memory the pages take. So each of the 256 stripes of the ledger has lists of its pages in
//! the order in which they were begun. A round reads the heads of all lists, removes the names of
//! expired pages, measures a sample of pages of each kind, and takes the others to be average. That
//! also says how much each app holds, because the field of a record names its app.
//!
//! If the ledger is over its limit, the round evicts the closed entries of the oldest pages, of apps
//! that hold more than their share ([`over_share`]). A page with other entries then goes to a list of
//! kept pages, so that it does not stand before pages from which entries can be evicted. Kept pages are
//! read, some in each round, while apps above their share have entries there.
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

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use async_trait::async_trait;
use push_model::{
    app::AppKey,
    ids::{AppTag, MessageId},
    ledger::{EvictionRound, History, over_share},
    time::UnixMillis,
};
use push_store::{IndexError, redis::connection::reply};
use redis::Value;

use self::lists::{ListKind, ListedPage};
pub(super) use self::stripes::{all_of, records_of};
use crate::{LedgerBounds, redis::RedisLedger};

/// The duration of the lease for measuring the ledger.
const LEASE: Duration = Duration::from_secs(5);

/// The most unread pages from which a round evicts: about 50,000 entries.
const EVICTED_PAGES: usize = 512;

/// The most kept pages that a round reads besides.
const KEPT_PAGES: usize = 128;

impl RedisLedger {
    /// Returns true if this program has the lease for measuring the ledger, which it acquires if it
    /// is free. A server that refuses writes, as one without memory does, refuses the lease as
    /// well: then every program measures.
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
impl LedgerBounds for RedisLedger {
    async fn keep_within(&self, limit: u64, now: UnixMillis) -> Result<EvictionRound, IndexError> {
        if !self.acquire_measuring_lease().await?
            && let Some(history) = self.history().await?
        {
            return Ok(EvictionRound { history, more: false });
        }
        let lists = self.lists().await?;
        let (mut bytes, mut held) = (0, BTreeMap::<AppTag, u64>::new());
        let mut in_kept = BTreeSet::new();
        for kind in ListKind::ALL {
            let measured = self.measure(kind, &lists).await?;
            bytes += measured.bytes;
            if kind == ListKind::Kept {
                in_kept.extend(measured.by_app.keys().copied());
            }
            for (app, bytes) in measured.by_app {
                *held.entry(app).or_default() += bytes;
            }
        }
        let of_none = bytes.saturating_sub(held.values().sum());
        let mut excess = over_share(&held, limit.saturating_sub(of_none));
        let kept: Vec<_> = match excess.keys().any(|app| in_kept.contains(app)) {
            true => lists.kept.iter().take(KEPT_PAGES).collect(),
            false => Vec::new(),
        };
        let of_kept = self.evict(&kept, &mut excess, now).await?;
        let is_complete =
            |page: &&ListedPage| lists.complete_until.is_none_or(|until| page.begun <= until);
        let unread = lists.heads.iter().take_while(is_complete).take(EVICTED_PAGES);
        let of_unread = self.evict(&unread.collect::<Vec<_>>(), &mut excess, now).await?;
        let (entries, freed) =
            (of_kept.entries + of_unread.entries, of_kept.bytes + of_unread.bytes);
        let next = lists.heads.get(of_unread.pages).or(lists.heads.last());
        let oldest = lists.kept.get(of_kept.pages..).unwrap_or_default().iter().chain(next);
        let oldest = oldest.map(ListedPage::oldest).chain(of_kept.left).chain(of_unread.left).min();
        let bytes = bytes.saturating_sub(freed);
        let mut history = History { measured_at: now, bytes, limit, oldest, evicted: entries };
        match self.note(&history, entries).await {
            Ok(evicted) => history.evicted = evicted,
            // A server without memory permits evictions and refuses to store what was measured.
            Err(IndexError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
        // Pages that were read are among the kept ones now: another round reads those that follow.
        let goes_on = entries > 0 || of_unread.pages > 0;
        let more = lists.more || (bytes > limit && goes_on);
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

    async fn evicted_until(
        &self,
        app: &AppKey,
        message: &MessageId,
    ) -> Result<Option<UnixMillis>, IndexError> {
        let mut get = redis::cmd("HMGET");
        get.arg(self.keys.message(app, message).evicted_until());
        get.arg(&AppTag::of(app).0).arg("*");
        let mut latest = None;
        for time in reply::list(self.quick.read(&get).await?)? {
            latest = latest.max(reply::number(time)?.map(UnixMillis));
        }
        Ok(latest)
    }
}
