//! Entries with fields of their own: one hash a message, in words that a person can read with
//! `HGETALL`.
//!
//! Broadcasts are kept so, with their plan and a state for each partition, and pushes to named
//! devices while some of them are to be tried again. Every change is one script. An entry expires
//! by itself; a step for an entry that is gone is an error and leaves nothing behind, so that no
//! half entry ever passes for a whole one.

use std::collections::BTreeMap;

use push_model::{
    ids::{AppId, MessageId},
    ledger::{
        Advance, Advanced, Counts, Entry, FailReason, Leftover, Opened, Outcomes, Partition,
        PartitionState, PartitionView, Plan, Recall, Retried, RetryReason, record,
    },
    time::UnixMillis,
};
use redis::Value;

use super::{KEEP_AT_LEAST, LONGEST, Stored, corrupt, stored};
use crate::{
    IndexError,
    redis::{RedisIndex, keys::MessageKeys, reply},
};

/// The field of a partition's state, before its number.
const STATE: &str = "part:";

/// The field of a partition's leftovers, before its number.
const LEFTOVERS: &str = "left:";

/// In place of the leftovers: they stay as they are.
const KEEP_LEFTOVERS: &str = "keep";

/// The fields of an entry that has any.
struct Fields<'a> {
    message: &'a MessageId,
    fields: BTreeMap<String, String>,
}

impl Fields<'_> {
    fn number(&self, field: &str) -> Result<Option<u64>, IndexError> {
        let read = |text: &String| text.parse().map_err(|_| corrupt(self.message, field));
        self.fields.get(field).map(read).transpose()
    }

    fn count(&self, field: &str) -> Result<u64, IndexError> {
        Ok(self.number(field)?.unwrap_or(0))
    }

    fn time(&self, field: &str) -> Result<UnixMillis, IndexError> {
        self.number(field)?.map(UnixMillis).ok_or_else(|| corrupt(self.message, field))
    }

    fn partitions(&self) -> Result<BTreeMap<u32, Partition>, IndexError> {
        let numbers = self.fields.keys().filter_map(|field| field.strip_prefix(STATE));
        numbers
            .map(|number| {
                let state = self.fields.get(&format!("{STATE}{number}")).map(String::as_str);
                let leftovers =
                    self.fields.get(&format!("{LEFTOVERS}{number}")).map(String::as_str);
                let partition = read_partition(self.message, state, leftovers)?;
                let number = number.parse().map_err(|_| corrupt(self.message, STATE))?;
                Ok((number, partition))
            })
            .collect()
    }

    fn outcomes(&self) -> Result<Outcomes, IndexError> {
        let mut outcomes = Outcomes {
            sent: self.count("sent")?,
            expired: self.count("expired")?,
            recalled: self.count("recalled")?,
            ..Outcomes::default()
        };
        for reason in FailReason::ALL {
            let count = self.count(&failed(reason))?;
            if count > 0 {
                outcomes.failed.insert(reason, count);
            }
        }
        Ok(outcomes)
    }

    fn retried(&self) -> Result<Retried, IndexError> {
        let mut counts = Retried::new();
        for reason in RetryReason::ALL {
            let count = self.count(&retried(reason))?;
            if count > 0 {
                counts.insert(reason, count);
            }
        }
        Ok(counts)
    }

    fn entry(&self) -> Result<Entry, IndexError> {
        let wrong = |field| move || corrupt(self.message, field);
        let app = self.fields.get("app").and_then(|app| app.parse().ok());
        let plan = self.fields.get("plan").map(|json| read_plan(json)).transpose()?;
        Ok(Entry {
            message_id: *self.message,
            app_id: app.ok_or_else(wrong("app"))?,
            accepted_at: self.time("accepted_at")?,
            expires_at: self.number("expires_at")?.map(UnixMillis),
            copy: self.number("copy")?,
            recalled_at: self.number("recalled_at")?.map(UnixMillis),
            plan,
            partitions: self.partitions()?,
            targeted: self.count("targeted")?,
            outcomes: self.outcomes()?,
            retried: self.retried()?,
        })
    }
}

/// Reads an entry; none if there is none.
pub(super) fn read(message: &MessageId, value: Value) -> Result<Option<Entry>, IndexError> {
    let fields: BTreeMap<_, _> = reply::fields(value)?.into_iter().collect();
    if fields.is_empty() {
        return Ok(None);
    }
    Fields { message, fields }.entry().map(Some)
}

/// Reads a partition; one that was never claimed has no fields.
fn read_partition(
    message: &MessageId,
    state: Option<&str>,
    leftovers: Option<&str>,
) -> Result<Partition, IndexError> {
    let state: Option<PartitionState> =
        state.map(|text| text.parse().map_err(|_| corrupt(message, STATE))).transpose()?;
    let leftovers: Option<Vec<Leftover>> = leftovers
        .map(|json| serde_json::from_str(json).map_err(|_| corrupt(message, LEFTOVERS)))
        .transpose()?;
    Ok(Partition { state: state.unwrap_or_default(), leftovers: leftovers.unwrap_or_default() })
}

fn leftovers_text(leftovers: &[Leftover]) -> Result<String, IndexError> {
    if leftovers.is_empty() {
        return Ok(String::new());
    }
    serde_json::to_string(leftovers).map_err(|error| IndexError::Corrupt(error.to_string()))
}

fn read_plan(json: &str) -> Result<Plan, IndexError> {
    serde_json::from_str(json).map_err(|error| IndexError::Corrupt(format!("a plan: {error}")))
}

fn plan_text(plan: &Plan) -> Result<String, IndexError> {
    serde_json::to_string(plan).map_err(|error| IndexError::Corrupt(error.to_string()))
}

fn failed(reason: FailReason) -> String {
    format!("failed:{}", reason.name())
}

fn retried(reason: RetryReason) -> String {
    format!("retried:{}", reason.name())
}

/// The counters that a batch changes.
fn counters(counts: &Counts) -> impl Iterator<Item = (String, u64)> {
    let outcomes = &counts.outcomes;
    let named = [
        ("targeted", counts.targeted),
        ("sent", outcomes.sent),
        ("expired", outcomes.expired),
        ("recalled", outcomes.recalled),
    ];
    let named = named.into_iter().map(|(name, count)| (name.to_owned(), count));
    let failed = outcomes.failed.iter().map(|(reason, count)| (failed(*reason), *count));
    let retried = counts.retried.iter().map(|(reason, count)| (retried(*reason), *count));
    named.chain(failed).chain(retried).filter(|(_, count)| *count > 0)
}

/// The fields of an entry with these.
fn fields_of(entry: &Entry) -> Result<Vec<(String, String)>, IndexError> {
    let mut fields = vec![
        ("app".to_owned(), entry.app_id.to_string()),
        ("accepted_at".to_owned(), entry.accepted_at.0.to_string()),
    ];
    let times = [("expires_at", entry.expires_at), ("recalled_at", entry.recalled_at)];
    let times = times.into_iter().filter_map(|(name, at)| Some((name, at?.0)));
    let numbers = times.chain(entry.copy.map(|copy| ("copy", copy)));
    fields.extend(numbers.map(|(name, number)| (name.to_owned(), number.to_string())));
    if let Some(plan) = &entry.plan {
        fields.push(("plan".to_owned(), plan_text(plan)?));
        fields.push(("strands".to_owned(), plan.partitions.len().to_string()));
    }
    for (number, Partition { state, leftovers }) in &entry.partitions {
        fields.push((format!("{STATE}{number}"), state.to_string()));
        if !leftovers.is_empty() {
            fields.push((format!("{LEFTOVERS}{number}"), leftovers_text(leftovers)?));
        }
    }
    let (targeted, outcomes) = (entry.targeted, entry.outcomes.clone());
    let counts = Counts { targeted, outcomes, retried: entry.retried.clone() };
    fields.extend(counters(&counts).map(|(name, count)| (name, count.to_string())));
    Ok(fields)
}

impl RedisIndex {
    /// Begins an entry with fields, or reads what is there. `replaced`: the record that it takes
    /// the place of.
    pub(super) async fn open_fields(
        &self,
        keys: &MessageKeys,
        opened: &Opened,
        replaced: Option<&[u8]>,
    ) -> Result<Stored, IndexError> {
        let mut open = self.scripts.open.call(&[&keys.entry(), &keys.page, &keys.rich_pages()]);
        open.arg(opened.keep_until.0).arg(KEEP_AT_LEAST.as_secs() * 1000);
        open.arg(opened.replaces.map(|copy| copy.to_string()).unwrap_or_default());
        open.arg(&keys.field).arg(&record::STUB).arg(replaced.unwrap_or_default());
        for (field, value) in fields_of(&Entry::begin(opened))? {
            open.arg(field).arg(value);
        }
        let answer = open.run(&self.quick).await?;
        stored(answer, |fields| read(&opened.message_id, fields))
    }

    pub(super) async fn advance_fields(
        &self,
        keys: &MessageKeys,
        step: &Advance,
    ) -> Result<Advanced, IndexError> {
        let mut advance = self.scripts.advance.call(&[&keys.entry(), &keys.page]);
        let number = step.partition;
        advance.arg(step.copy).arg(format!("{STATE}{number}"));
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
            "saved" => Ok(Advanced::Saved { recalled: false }),
            "recalled" => Ok(Advanced::Saved { recalled: true }),
            "conflict" => Ok(Advanced::Conflict),
            _ => Ok(Advanced::Unknown),
        }
    }

    pub(super) async fn recall_fields(
        &self,
        keys: &MessageKeys,
        app: &AppId,
        message: &MessageId,
        recall: &Recall,
    ) -> Result<Stored, IndexError> {
        let mut call = self.scripts.recall.call(&[&keys.entry(), &keys.page, &keys.rich_pages()]);
        call.arg(app.as_str()).arg(recall.at.0).arg(PartitionState::ENDED.to_string());
        call.arg(&keys.field).arg(&record::STUB);
        if let Some(ahead) = recall.ahead {
            call.arg(ahead.accepted_at.0).arg(ahead.keep_until.0);
        }
        stored(call.run(&self.quick).await?, |fields| read(message, fields))
    }

    pub(super) async fn plan_fields(
        &self,
        keys: &MessageKeys,
        plan: &Plan,
    ) -> Result<Option<Plan>, IndexError> {
        let mut store = self.scripts.plan.call(&[&keys.entry()]);
        match store.arg(plan_text(plan)?).arg(plan.partitions.len()).run(&self.quick).await? {
            Value::Nil => Ok(None),
            json => read_plan(&reply::text(json)?).map(Some),
        }
    }

    /// Gives an entry fields in place of this record. False if the record is another one by now.
    pub(super) async fn promote(
        &self,
        keys: &MessageKeys,
        record: &[u8],
        entry: &Entry,
        keep_until: Option<UnixMillis>,
    ) -> Result<bool, IndexError> {
        let mut promote = self.scripts.promote.call(&[&keys.page, &keys.entry()]);
        promote.arg(&keys.field).arg(record).arg(&record::STUB);
        promote.arg(keep_until.map_or(0, |at| at.0));
        for (field, value) in fields_of(entry)? {
            promote.arg(field).arg(value);
        }
        Ok(reply::number(promote.run(&self.quick).await?)? == Some(1))
    }

    /// Keeps an entry that has ended as a record, if it fits into one.
    pub(super) async fn demote(
        &self,
        keys: &MessageKeys,
        app: &AppId,
        message: &MessageId,
    ) -> Result<(), IndexError> {
        let mut get = redis::cmd("HGETALL");
        get.arg(keys.entry());
        let entry = read(message, self.quick.read(&get).await?)?;
        // A record does not say whose it is.
        let Some(entry) = entry.filter(|entry| entry.app_id == *app) else { return Ok(()) };
        let record = record::encode(&entry).filter(|record| record.len() <= LONGEST);
        let Some(record) = record else { return Ok(()) };
        let mut demote = self.scripts.demote.call(&[&keys.page, &keys.entry()]);
        demote.arg(&keys.field).arg(&record::STUB).arg(record);
        demote.arg(format!("{STATE}0")).arg(PartitionState::ENDED.to_string());
        demote.arg(entry.recalled_at.map(|at| at.0.to_string()).unwrap_or_default());
        demote.run(&self.quick).await.map(drop)
    }
}

/// Adds the reading of a partition to a pipeline.
pub(super) fn ask_for_partition(pipe: &mut redis::Pipeline, keys: &MessageKeys, number: u32) {
    pipe.cmd("HMGET").arg(keys.entry()).arg("app").arg("copy").arg("recalled_at");
    pipe.arg(format!("{STATE}{number}")).arg(format!("{LEFTOVERS}{number}"));
}

/// Reads what [`ask_for_partition`] asked for; none if this app has no such entry.
pub(super) fn read_view(
    app: &AppId,
    message: &MessageId,
    fields: Value,
) -> Result<Option<PartitionView>, IndexError> {
    let mut texts = reply::list(fields)?.into_iter().map(|field| match field {
        Value::Nil => Ok(None),
        field => reply::text(field).map(Some),
    });
    let mut next = || texts.next().transpose().map(Option::flatten);
    let (of_app, copy, recalled) = (next()?, next()?, next()?);
    let (state, leftovers) = (next()?, next()?);
    if of_app.as_deref() != Some(app.as_str()) {
        return Ok(None);
    }
    let copy = copy.map(|copy| copy.parse().map_err(|_| corrupt(message, "copy")));
    Ok(Some(PartitionView {
        copy: copy.transpose()?,
        recalled: recalled.is_some(),
        partition: read_partition(message, state.as_deref(), leftovers.as_deref())?,
    }))
}
