//! Reads the members of an app's lists.
//!
//! A page needs the newest members of all lists, which are few, but each list may have one of them. So the
//! first [`FIRST_MEMBERS`] are read of every list, and more only of lists whose further members can be among
//! the newest.
//!
//! Most apps have lists of one or two kinds in all stripes, and a few of the others. To look for a list takes
//! Redis a tenth of the time that it takes to read it, so a single server is first asked where there are
//! lists. In a cluster that would take as many requests as reading them.

use push_model::{ids::AppTag, ledger::ListPlace};
use push_store::{
    IndexError,
    redis::{
        connection::reply,
        keys::{EntryList, STRIPES},
    },
};
use redis::{Cmd, Pipeline};

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

/// Lists of one kind that are looked for together.
const NEIGHBOURS: usize = 32;

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
        let of_kind = |kind| STRIPES.map(move |stripe| ListRead::unread(stripe, kind));
        let mut lists: Vec<_> = EntryList::all().flat_map(of_kind).collect();
        if !self.bulk.is_cluster() {
            lists = self.with_neighbours_there(app, lists).await?;
        }
        self.read_on(app, before, lists.iter_mut().collect(), FIRST_MEMBERS).await?;
        lists.retain(|list| !list.members.is_empty());
        Ok(lists)
    }

    /// Leaves out lists of which a single server has none of the same [`NEIGHBOURS`].
    async fn with_neighbours_there(
        &self,
        app: AppTag,
        lists: Vec<ListRead>,
    ) -> Result<Vec<ListRead>, IndexError> {
        let mut ask = Pipeline::new();
        for neighbours in lists.chunks(NEIGHBOURS) {
            let key = |read: &ListRead| self.keys.stripe(read.stripe).entry_list(read.list, app);
            ask.cmd("EXISTS").arg(neighbours.iter().map(key).collect::<Vec<_>>());
        }
        let mut are_there = Vec::new();
        for count in self.bulk.read_all(&ask).await? {
            are_there.push(reply::number(count)? != Some(0));
        }
        let numbered = lists.into_iter().enumerate();
        let there =
            numbered.filter(|(number, _)| are_there.get(number / NEIGHBOURS) == Some(&true));
        Ok(there.map(|(_, list)| list).collect())
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
