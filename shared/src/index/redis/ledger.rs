//! The ledger: one hash a message, in words that a person can read with `HGETALL`.
//!
//! Every change is one script. An entry expires by itself; a step for an entry that is gone is
//! an error and leaves nothing behind, so that no half entry ever passes for a whole one.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use redis::Value;

use super::{RedisIndex, reply};
use crate::{
    ids::{AppId, MessageId},
    index::{IndexError, Ledger},
    ledger::{
        Advance, Advanced, Counts, Entry, FailReason, Leftover, Opened, Outcomes, Partition,
        PartitionState, PartitionView, Plan, Recall, RecallOutcome, Retried, RetryReason,
    },
    time::UnixMillis,
};

/// An entry is kept at least this long after it was begun, however late that was: its message is
/// being worked on. Longer than the longest delay of a queue message, rounding included.
const KEEP_AT_LEAST: Duration = Duration::from_secs(2 * 3600);

/// The field of a partition's state, before its number.
const STATE: &str = "part:";

/// The field of a partition's leftovers, before its number.
const LEFTOVERS: &str = "left:";

/// In place of the leftovers: they stay as they are.
const KEEP_LEFTOVERS: &str = "keep";

fn unknown(message: &MessageId) -> IndexError {
    IndexError::Corrupt(format!("the ledger has no entry for message {message}"))
}

fn unreadable(message: &MessageId, field: &str) -> IndexError {
    IndexError::Corrupt(format!("the ledger entry of message {message}: {field}"))
}

/// The fields of an entry that has any.
struct Fields<'a> {
    message: &'a MessageId,
    fields: BTreeMap<String, String>,
}

impl Fields<'_> {
    fn number(&self, field: &str) -> Result<Option<u64>, IndexError> {
        let read = |text: &String| text.parse().map_err(|_| unreadable(self.message, field));
        self.fields.get(field).map(read).transpose()
    }

    fn count(&self, field: &str) -> Result<u64, IndexError> {
        Ok(self.number(field)?.unwrap_or(0))
    }

    fn time(&self, field: &str) -> Result<UnixMillis, IndexError> {
        self.number(field)?.map(UnixMillis).ok_or_else(|| unreadable(self.message, field))
    }

    fn partitions(&self) -> Result<BTreeMap<u32, Partition>, IndexError> {
        let numbers = self.fields.keys().filter_map(|field| field.strip_prefix(STATE));
        numbers
            .map(|number| {
                let state = self.fields.get(&format!("{STATE}{number}")).map(String::as_str);
                let leftovers =
                    self.fields.get(&format!("{LEFTOVERS}{number}")).map(String::as_str);
                let partition = read_partition(self.message, state, leftovers)?;
                let number = number.parse().map_err(|_| unreadable(self.message, STATE))?;
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
        let wrong = |field| move || unreadable(self.message, field);
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
fn read(message: &MessageId, value: Value) -> Result<Option<Entry>, IndexError> {
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
        state.map(|text| text.parse().map_err(|_| unreadable(message, STATE))).transpose()?;
    let leftovers: Option<Vec<Leftover>> = leftovers
        .map(|json| serde_json::from_str(json).map_err(|_| unreadable(message, LEFTOVERS)))
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

#[async_trait]
impl Ledger for RedisIndex {
    async fn open(&self, opened: &Opened) -> Result<Entry, IndexError> {
        let mut open = self.scripts.open.call(&[&self.keys.message(&opened.message_id)]);
        open.arg(opened.keep_until.0).arg(KEEP_AT_LEAST.as_secs() * 1000);
        open.arg(opened.replaces.map(|copy| copy.to_string()).unwrap_or_default());
        open.arg("app").arg(opened.app_id.as_str());
        open.arg("accepted_at").arg(opened.accepted_at.0);
        open.arg("expires_at").arg(opened.expires_at.0);
        open.arg("copy").arg(opened.copy);
        if let Some(plan) = &opened.plan {
            open.arg("plan").arg(plan_text(plan)?).arg("strands").arg(plan.partitions.len());
        }
        if let Some(claim) = opened.claim {
            let state = PartitionState { claim: Some(claim), ..PartitionState::default() };
            open.arg(format!("{STATE}0")).arg(state.to_string());
        }
        let entry = read(&opened.message_id, open.run(&self.quick).await?)?;
        entry.ok_or_else(|| unknown(&opened.message_id))
    }

    async fn plan(&self, message: &MessageId, plan: &Plan) -> Result<Option<Plan>, IndexError> {
        let mut store = self.scripts.plan.call(&[&self.keys.message(message)]);
        match store.arg(plan_text(plan)?).arg(plan.partitions.len()).run(&self.quick).await? {
            Value::Nil => Ok(None),
            json => read_plan(&reply::text(json)?).map(Some),
        }
    }

    async fn partition(
        &self,
        app: &AppId,
        message: &MessageId,
        number: u32,
    ) -> Result<Option<PartitionView>, IndexError> {
        let mut get = redis::cmd("HMGET");
        get.arg(self.keys.message(message)).arg("app").arg("copy").arg("recalled_at");
        get.arg(format!("{STATE}{number}")).arg(format!("{LEFTOVERS}{number}"));
        let fields = reply::list(self.quick.read(&get).await?)?;
        let mut texts = fields.into_iter().map(|field| match field {
            Value::Nil => Ok(None),
            field => reply::text(field).map(Some),
        });
        let mut next = || texts.next().transpose().map(Option::flatten);
        let (of_app, copy, recalled) = (next()?, next()?, next()?);
        let (state, leftovers) = (next()?, next()?);
        if of_app.as_deref() != Some(app.as_str()) {
            return Ok(None);
        }
        let copy = copy.map(|copy| copy.parse().map_err(|_| unreadable(message, "copy")));
        Ok(Some(PartitionView {
            copy: copy.transpose()?,
            recalled: recalled.is_some(),
            partition: read_partition(message, state.as_deref(), leftovers.as_deref())?,
        }))
    }

    async fn advance(&self, message: &MessageId, step: &Advance) -> Result<Advanced, IndexError> {
        let mut advance = self.scripts.advance.call(&[&self.keys.message(message)]);
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

    async fn entry(&self, app: &AppId, message: &MessageId) -> Result<Option<Entry>, IndexError> {
        let mut get = redis::cmd("HGETALL");
        get.arg(self.keys.message(message));
        let entry = read(message, self.quick.read(&get).await?)?;
        Ok(entry.filter(|entry| entry.app_id == *app))
    }

    async fn recall(
        &self,
        app: &AppId,
        message: &MessageId,
        recall: &Recall,
    ) -> Result<RecallOutcome, IndexError> {
        let mut call = self.scripts.recall.call(&[&self.keys.message(message)]);
        call.arg(app.as_str()).arg(recall.at.0).arg(PartitionState::ENDED.to_string());
        if let Some(ahead) = recall.ahead {
            call.arg(ahead.accepted_at.0).arg(ahead.keep_until.0);
        }
        let answer = call.run(&self.quick).await?;
        Ok(match read(message, answer)? {
            None => RecallOutcome::Unknown,
            Some(entry) if entry.recalled_at.is_some() => RecallOutcome::Recalled(entry),
            Some(entry) => RecallOutcome::AlreadyClosed(entry),
        })
    }
}
