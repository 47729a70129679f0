//! Reads the members of an app's lists.
//!
//! A page needs the newest members of all lists, which are few, but each list may have one of them. So the
//! first [`FIRST_MEMBERS`] are read of every list, and more only of lists whose further members can be among
//! the newest. A single server reads the lists of many stripes in one script, in a fraction of the time that
//! it takes for a command for each list. In a cluster no two stripes need have the same server.

use futures::{StreamExt, TryStreamExt, stream};
use push_model::{ids::AppTag, ledger::ListPlace};
use push_store::{
    IndexError,
    redis::{
        connection::reply,
        keys::{EntryList, STRIPES, StripeKeys},
    },
};
use redis::Cmd;

use super::{
    member::bound,
    merge::{Elements, ListRead},
};
use crate::redis::RedisLedger;

/// Members that are read of each list first. With them about the newest 70 of a single kind of list in 256
/// stripes are known.
const FIRST_MEMBERS: usize = 3;

/// Members that are read each time of a list that has more.
const MORE_MEMBERS: usize = 16;

/// Stripes that one script reads, which takes Redis a quarter of a millisecond.
const STRIPES_OF_CALL: usize = 16;

/// Script calls in flight. Redis may run them one after the other before it serves another client.
const CALLS_IN_FLIGHT: usize = 3;

/// The bound of the members of a list that may lead to entries older than a place, as a command has it.
fn below(list: EntryList, before: Option<&ListPlace>) -> Vec<u8> {
    before.map_or_else(|| b"+".to_vec(), |before| exclusive(&bound(list, before)))
}

fn exclusive(bound: &[u8]) -> Vec<u8> {
    [b"(", bound].concat()
}

/// The request for the members of a list that are below a bound, the greatest first.
fn members_below(key: &str, bound: &[u8], limit: usize) -> Cmd {
    let mut read = redis::cmd("ZREVRANGEBYLEX");
    read.arg(key).arg(bound).arg("-").arg("LIMIT").arg(0).arg(limit);
    read
}

/// Reads an answer with members.
fn members_of(answer: redis::Value) -> Result<Vec<Vec<u8>>, IndexError> {
    let members = reply::list(answer)?.into_iter();
    members.map(|member| Ok(reply::bytes(member)?.unwrap_or_default())).collect()
}

impl RedisLedger {
    /// Reads the first members of all lists of an app that may lead to entries older than a place. Lists
    /// without such members are left out.
    pub(super) async fn read_heads(
        &self,
        app: AppTag,
        before: Option<&ListPlace>,
    ) -> Result<Vec<ListRead>, IndexError> {
        let mut lists = Vec::new();
        for stripe in STRIPES {
            lists.extend(EntryList::all().map(|list| ListRead::unread(stripe, list)));
        }
        if self.bulk.is_cluster() {
            let all = lists.iter_mut().collect();
            self.read_on(app, before, all, FIRST_MEMBERS).await?;
        } else {
            self.read_by_script(app, before, &mut lists).await?;
        }
        lists.retain(|list| !list.members.is_empty());
        Ok(lists)
    }

    /// Reads the first members of these lists, which are all lists of all stripes, at a single server.
    async fn read_by_script(
        &self,
        app: AppTag,
        before: Option<&ListPlace>,
        lists: &mut [ListRead],
    ) -> Result<(), IndexError> {
        let of_stripe = EntryList::all().count();
        let stripes: Vec<_> = STRIPES.map(|stripe| self.keys.stripe(stripe)).collect();
        let mut calls = Vec::new();
        for stripes in stripes.chunks(STRIPES_OF_CALL) {
            let keys: Vec<&str> = stripes.iter().map(StripeKeys::base).collect();
            let mut call = self.scripts.heads.call(&keys);
            call.arg(FIRST_MEMBERS);
            for list in EntryList::all() {
                call.arg(list.key_end(app)).arg(below(list, before));
            }
            calls.push(async move { call.read(&self.bulk).await });
        }
        let answers: Vec<_> = stream::iter(calls).buffered(CALLS_IN_FLIGHT).try_collect().await?;
        for (answer, lists) in
            answers.into_iter().zip(lists.chunks_mut(STRIPES_OF_CALL * of_stripe))
        {
            lists.iter_mut().for_each(|list| list.has_more = false);
            let mut parts = reply::list(answer)?.into_iter();
            while let (Some(number), Some(members)) = (parts.next(), parts.next()) {
                let number = reply::number(number)?.and_then(|number| usize::try_from(number).ok());
                let list = number.and_then(|number| lists.get_mut(number));
                let list = list.ok_or_else(|| IndexError::Corrupt("a list's number".to_owned()))?;
                list.add(members_of(members)?, FIRST_MEMBERS);
            }
        }
        Ok(())
    }

    /// Reads more of the lists, until the newest `wanted` elements are known or there are no more.
    pub(super) async fn read_until_known(
        &self,
        app: AppTag,
        before: Option<&ListPlace>,
        lists: &mut [ListRead],
        wanted: usize,
    ) -> Result<Elements, IndexError> {
        loop {
            let elements = Elements::of(lists);
            let Some(unread) = elements.unread.filter(|_| elements.known.len() < wanted) else {
                return Ok(elements);
            };
            let mut times: Vec<_> = lists.iter().flat_map(ListRead::times).collect();
            times.sort_unstable_by_key(|time| std::cmp::Reverse(*time));
            // Only members after this can be among those that are wanted.
            let until = times.get(wanted).map_or_else(Default::default, |time| unread.min(*time));
            let more = lists.iter_mut();
            let more = more.filter(|list| list.has_more && list.last() >= until);
            self.read_on(app, before, more.collect(), MORE_MEMBERS).await?;
        }
    }

    /// Reads further members of lists, with a command for each.
    async fn read_on(
        &self,
        app: AppTag,
        before: Option<&ListPlace>,
        lists: Vec<&mut ListRead>,
        limit: usize,
    ) -> Result<(), IndexError> {
        let ask = lists.iter().map(|read| {
            let key = self.keys.stripe(read.stripe).entry_list(read.list, app);
            let last = read.members.last().map(|last| exclusive(last));
            let bound = last.unwrap_or_else(|| below(read.list, before));
            (read.stripe, members_below(&key, &bound, limit))
        });
        let answers = self.ask_stripes(ask.collect()).await?;
        for (list, answer) in lists.into_iter().zip(answers) {
            list.add(members_of(answer)?, limit);
        }
        Ok(())
    }
}
