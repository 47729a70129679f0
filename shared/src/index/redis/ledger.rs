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
        Entry, FailReason, Opened, Outcomes, Plan, Position, Recall, RecallOutcome, Retried,
        RetryReason, Settled, Settlement, StrandId,
    },
    time::UnixMillis,
};

/// An entry is kept at least this long after it was begun, however late that was: its message is
/// being worked on.
const KEEP_AT_LEAST: Duration = Duration::from_secs(3600);

/// The checkpoint of a strand that is done.
const END: &str = "end";

/// The field of a strand's checkpoint, before its number.
const POSITION: &str = "pos:";

fn position_text(position: Position) -> String {
    if position == Position::END { END.to_owned() } else { position.0.to_string() }
}

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

    fn positions(&self) -> Result<BTreeMap<StrandId, Position>, IndexError> {
        let strands = self.fields.iter().filter_map(|(field, text)| {
            let strand = field.strip_prefix(POSITION)?;
            Some((field, strand, text))
        });
        strands
            .map(|(field, strand, text)| {
                let position = match text.as_str() {
                    END => Some(Position::END),
                    text => text.parse().map(Position).ok(),
                };
                let strand = strand.parse().ok();
                strand.zip(position).ok_or_else(|| unreadable(self.message, field))
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
            positions: self.positions()?,
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
fn counters(settlement: &Settlement) -> impl Iterator<Item = (String, u64)> {
    let outcomes = &settlement.outcomes;
    let named = [
        ("targeted", settlement.targeted),
        ("sent", outcomes.sent),
        ("expired", outcomes.expired),
        ("recalled", outcomes.recalled),
    ];
    let named = named.into_iter().map(|(name, count)| (name.to_owned(), count));
    let failed = outcomes.failed.iter().map(|(reason, count)| (failed(*reason), *count));
    let retried = settlement.retried.iter().map(|(reason, count)| (retried(*reason), *count));
    named.chain(failed).chain(retried).filter(|(_, count)| *count > 0)
}

#[async_trait]
impl Ledger for RedisIndex {
    async fn open(&self, opened: &Opened) -> Result<Entry, IndexError> {
        let mut open = self.scripts.open.call(&[&self.keys.message(&opened.message_id)]);
        open.arg(opened.keep_until.0).arg(KEEP_AT_LEAST.as_secs() * 1000);
        open.arg("app").arg(opened.app_id.as_str());
        open.arg("accepted_at").arg(opened.accepted_at.0);
        open.arg("expires_at").arg(opened.expires_at.0);
        open.arg("copy").arg(opened.copy);
        if let Some(plan) = &opened.plan {
            open.arg("plan").arg(plan_text(plan)?).arg("strands").arg(plan.strands.len());
        }
        let entry = read(&opened.message_id, open.run(&self.quick).await?)?;
        entry.ok_or_else(|| unknown(&opened.message_id))
    }

    async fn plan(&self, message: &MessageId, plan: &Plan) -> Result<Plan, IndexError> {
        let mut store = self.scripts.plan.call(&[&self.keys.message(message)]);
        match store.arg(plan_text(plan)?).arg(plan.strands.len()).run(&self.quick).await? {
            Value::Nil => Err(unknown(message)),
            json => read_plan(&reply::text(json)?),
        }
    }

    async fn settle(
        &self,
        message: &MessageId,
        settlement: &Settlement,
    ) -> Result<Settled, IndexError> {
        let mut settle = self.scripts.settle.call(&[&self.keys.message(message)]);
        let field = |strand: StrandId| format!("{POSITION}{strand}");
        // What the checkpoint is where the entry has none, and whether it goes when it ends.
        let (absent, ends) = match settlement.strand {
            StrandId::Planned(_) => ("0", "stays"),
            StrandId::Retry(_) => ("not open", "goes"),
        };
        settle.arg(field(settlement.strand)).arg(absent);
        settle.arg(position_text(settlement.from)).arg(position_text(settlement.to));
        settle.arg(if settlement.to == Position::END { ends } else { "stays" });
        settle.arg(settlement.opens.map(field).unwrap_or_default());
        for (counter, count) in counters(settlement) {
            settle.arg(counter).arg(count);
        }
        match reply::text(settle.run(&self.quick).await?)?.as_str() {
            "saved" => Ok(Settled::Saved { recalled: false }),
            "recalled" => Ok(Settled::Saved { recalled: true }),
            "overtaken" => Ok(Settled::Overtaken),
            _ => Err(unknown(message)),
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
        call.arg(app.as_str()).arg(recall.at.0).arg(END);
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
