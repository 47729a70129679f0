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

mod forget;
mod lists;
mod measure;
mod parts;

use std::time::Duration;

use async_trait::async_trait;
use push_model::{
    ids::MessageId,
    ledger::{History, Round},
    time::UnixMillis,
};
use redis::Value;

use self::{
    forget::Forgotten,
    lists::{Kind, Listed},
};
use crate::{
    IndexError, LedgerBounds,
    redis::{RedisIndex, keys::PARTS, reply},
};

/// For how long other programs leave the ledger to the one that looked at it last.
const TURN: Duration = Duration::from_secs(5);

/// What a list takes for each page.
const LISTED: u64 = 20;

/// A page of which nothing could be forgotten is not looked at again for so long: otherwise a round
/// over open pages would follow the other.
const LOOKED_AT_AGAIN: Duration = Duration::from_mins(1);

impl RedisIndex {
    /// The server's clock, which says when pages were begun.
    async fn clock(&self) -> Result<UnixMillis, IndexError> {
        let mut time = reply::list(self.bulk.read(&redis::cmd("TIME")).await?)?.into_iter();
        let seconds = reply::number(time.next().unwrap_or_default())?.unwrap_or(0);
        Ok(UnixMillis(seconds.saturating_mul(1000)))
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
