//! Expanded entries: one hash a message, with field names that a person can read with `HGETALL`.
//!
//! Broadcasts are kept so, with their plan and a state for each partition, and pushes to named
//! devices while some of them are to be tried again. Every change is one script. An entry expires
//! by itself. A step for an entry that is gone is an error and writes nothing, so that no
//! incomplete entry is ever taken for a whole one.

mod fields;

use push_model::{
    ids::{AppId, MessageId},
    ledger::{
        Advance, AdvanceOutcome, Entry, NewEntry, PartitionState, PartitionView, Plan, Recall,
        eviction_mark, record,
    },
    time::UnixMillis,
};
use push_store::{
    IndexError,
    redis::{
        connection::reply,
        keys::{MessageKeys, StripeKeys},
    },
};
use redis::Value;

pub(super) use self::fields::read;
use self::fields::{
    KEEP_LEFTOVERS, LEFTOVERS, STATE, counters, fields_of, leftovers_text, plan_text,
    read_partition, read_plan,
};
use super::{
    list::{ListMember, kept_lists},
    records::MAX_RECORD,
    stored_entry::{KEEP_AT_LEAST, StoredEntry, corrupt},
};
use crate::redis::RedisLedger;

impl RedisLedger {
    /// Begins an expanded entry, or reads what is stored, unless the eviction of the same job's entry
    /// is remembered. `replaced` is the record that the entry replaces.
    pub(in crate::redis) async fn begin_expanded(
        &self,
        keys: &MessageKeys,
        new: &NewEntry,
        replaced: Option<&[u8]>,
    ) -> Result<StoredEntry, IndexError> {
        let overflow = keys.overflow_page();
        let evicted = StripeKeys::evicted_of(&keys.page);
        let ListMember { list, member } = ListMember::of_expanded(new);
        let list = StripeKeys::entry_list_of(&keys.page, list, keys.field.app());
        let keys_of_call = [
            &keys.expanded_entry(),
            &keys.page,
            &keys.expanded_pages(),
            &overflow,
            &evicted,
            &list,
        ];
        let mut begin = self.scripts.begin_expanded.call(&keys_of_call.map(String::as_str));
        begin.arg(new.keep_until.0).arg(KEEP_AT_LEAST.as_secs() * 1000);
        begin.arg(new.replaces.map(|dedup_nonce| dedup_nonce.to_string()).unwrap_or_default());
        begin.arg(&keys.field.0).arg(&record::STUB).arg(replaced.unwrap_or_default());
        begin.arg(eviction_mark(&new.message_id, new.dedup_nonce)).arg(0).arg(member);
        for (field, value) in fields_of(&Entry::begin(new))? {
            begin.arg(field).arg(value);
        }
        let answer = begin.run(&self.quick).await?;
        StoredEntry::of_answer(answer, |fields| read(&new.message_id, fields))
    }

    pub(in crate::redis) async fn advance_expanded(
        &self,
        keys: &MessageKeys,
        message: &MessageId,
        step: &Advance,
    ) -> Result<AdvanceOutcome, IndexError> {
        let (entry, overflow) = (keys.expanded_entry(), keys.overflow_page());
        let lists = kept_lists(keys, message, step.keep_until);
        let keys_of_call = [&entry, &keys.page, &overflow].into_iter().chain(&lists);
        let keys_of_call: Vec<&str> = keys_of_call.map(String::as_str).collect();
        let mut advance = self.scripts.advance.call(&keys_of_call);
        let number = step.partition;
        advance.arg(step.dedup_nonce).arg(format!("{STATE}{number}"));
        // A partition that was never claimed has no field.
        let is_new = step.from == PartitionState::default();
        advance.arg(if is_new { String::new() } else { step.from.to_string() });
        advance.arg(step.to.to_string()).arg(format!("{LEFTOVERS}{number}"));
        advance.arg(match &step.leftovers {
            None => KEEP_LEFTOVERS.to_owned(),
            Some(leftovers) => leftovers_text(leftovers)?,
        });
        advance.arg(step.keep_until.map_or(0, |at| at.0)).arg(KEEP_AT_LEAST.as_secs() * 1000);
        for (counter, count) in counters(&step.counts) {
            advance.arg(counter).arg(count);
        }
        match reply::text(advance.run(&self.quick).await?)?.as_str() {
            "saved" => Ok(AdvanceOutcome::Saved { recalled: false }),
            "recalled" => Ok(AdvanceOutcome::Saved { recalled: true }),
            "conflict" => Ok(AdvanceOutcome::Conflict),
            _ => Ok(AdvanceOutcome::Unknown),
        }
    }

    /// Recalls an expanded entry, or begins one that is recalled; a record is only read.
    pub(in crate::redis) async fn recall_expanded(
        &self,
        keys: &MessageKeys,
        app: &AppId,
        message: &MessageId,
        recall: &Recall,
    ) -> Result<StoredEntry, IndexError> {
        let overflow = keys.overflow_page();
        let keys_of_call = [&keys.expanded_entry(), &keys.page, &keys.expanded_pages(), &overflow];
        let mut call = self.scripts.recall.call(&keys_of_call.map(String::as_str));
        call.arg(app.as_str()).arg(recall.at.0).arg(PartitionState::ENDED.to_string());
        call.arg(&keys.field.0).arg(&record::STUB);
        if let Some(early) = recall.early {
            call.arg(early.accepted_at.0).arg(early.keep_until.0);
        }
        StoredEntry::of_answer(call.run(&self.quick).await?, |fields| read(message, fields))
    }

    pub(in crate::redis) async fn plan_expanded(
        &self,
        keys: &MessageKeys,
        plan: &Plan,
    ) -> Result<Option<Plan>, IndexError> {
        let mut store = self.scripts.plan.call(&[&keys.expanded_entry()]);
        match store.arg(plan_text(plan)?).arg(plan.partitions.len()).run(&self.quick).await? {
            Value::Nil => Ok(None),
            json => read_plan(&reply::text(json)?).map(Some),
        }
    }

    /// Expands an entry whose record is `record`. False if the record is another one by now.
    pub(in crate::redis) async fn expand(
        &self,
        keys: &MessageKeys,
        message: &MessageId,
        (record, entry): (&[u8], &Entry),
        keep_until: Option<UnixMillis>,
    ) -> Result<bool, IndexError> {
        let (expanded, lists) = (keys.expanded_entry(), kept_lists(keys, message, keep_until));
        let keys_of_call = [&keys.page, &expanded].into_iter().chain(&lists);
        let keys_of_call: Vec<&str> = keys_of_call.map(String::as_str).collect();
        let mut expand = self.scripts.expand.call(&keys_of_call);
        expand.arg(&keys.field.0).arg(record).arg(&record::STUB);
        expand.arg(keep_until.map_or(0, |at| at.0));
        for (field, value) in fields_of(entry)? {
            expand.arg(field).arg(value);
        }
        Ok(reply::number(expand.run(&self.quick).await?)? == Some(1))
    }

    /// Makes an expanded entry that has ended a record, if it fits into one.
    pub(in crate::redis) async fn compact(
        &self,
        keys: &MessageKeys,
        app: &AppId,
        message: &MessageId,
    ) -> Result<(), IndexError> {
        let mut get = redis::cmd("HGETALL");
        get.arg(keys.expanded_entry());
        let entry = read(message, self.quick.read(&get).await?)?;
        let Some(entry) = entry.filter(|entry| entry.app_id == *app) else { return Ok(()) };
        let record = record::encode(&entry).filter(|record| record.len() <= MAX_RECORD);
        let Some(record) = record else { return Ok(()) };
        let mut compact = self.scripts.compact.call(&[&keys.page, &keys.expanded_entry()]);
        compact.arg(&keys.field.0).arg(&record::STUB).arg(record);
        compact.arg(format!("{STATE}0")).arg(PartitionState::ENDED.to_string());
        compact.arg(entry.recalled_at.map(|at| at.0.to_string()).unwrap_or_default());
        compact.run(&self.quick).await.map(drop)
    }
}

/// Adds the reading of a partition to a pipeline.
pub(in crate::redis) fn ask_for_partition(
    pipe: &mut redis::Pipeline,
    keys: &MessageKeys,
    number: u32,
) {
    pipe.cmd("HMGET").arg(keys.expanded_entry()).arg("app").arg("dedup_nonce").arg("recalled_at");
    pipe.arg(format!("{STATE}{number}")).arg(format!("{LEFTOVERS}{number}"));
}

/// Reads the answer to [`ask_for_partition`]; none if this app has no such entry.
pub(in crate::redis) fn read_view(
    app: &AppId,
    message: &MessageId,
    fields: Value,
) -> Result<Option<PartitionView>, IndexError> {
    let mut texts = reply::list(fields)?.into_iter().map(|field| match field {
        Value::Nil => Ok(None),
        field => reply::text(field).map(Some),
    });
    let mut next = || texts.next().transpose().map(Option::flatten);
    let (of_app, dedup_nonce, recalled) = (next()?, next()?, next()?);
    let (state, leftovers) = (next()?, next()?);
    if of_app.as_deref() != Some(app.as_str()) {
        return Ok(None);
    }
    let dedup_nonce = dedup_nonce
        .map(|dedup_nonce| dedup_nonce.parse().map_err(|_| corrupt(message, "dedup_nonce")));
    Ok(Some(PartitionView {
        dedup_nonce: dedup_nonce.transpose()?,
        recalled: recalled.is_some(),
        partition: read_partition(message, state.as_deref(), leftovers.as_deref())?,
    }))
}
