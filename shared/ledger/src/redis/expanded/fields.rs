//! The fields of an expanded entry, and the values in them.

use std::collections::BTreeMap;

use push_model::{
    ids::MessageId,
    ledger::{
        Counts, Entry, FailReason, Leftover, Outcomes, Partition, PartitionState, Plan, Retried,
        RetryReason,
    },
    time::UnixMillis,
};
use push_store::{IndexError, redis::connection::reply};
use redis::Value;

use crate::redis::stored_entry::corrupt;

/// The field of a partition's state, without the number of the partition.
pub(super) const STATE: &str = "state:";

/// The field of a partition's leftovers, without the number of the partition.
pub(super) const LEFTOVERS: &str = "leftovers:";

/// The field of a broadcast's content and sender.
const BROADCAST: &str = "broadcast";

/// The argument that tells `advance.lua` to leave the leftovers as they are.
pub(super) const KEEP_LEFTOVERS: &str = "keep";

/// The fields of an expanded entry.
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
        let broadcast = self
            .fields
            .get(BROADCAST)
            .map(|json| serde_json::from_str(json).map_err(|_| corrupt(self.message, BROADCAST)));
        let plan = self.fields.get("plan").map(|json| read_plan(json)).transpose()?;
        Ok(Entry {
            message_id: *self.message,
            app_id: app.ok_or_else(wrong("app"))?,
            accepted_at: self.time("accepted_at")?,
            expires_at: self.number("expires_at")?.map(UnixMillis),
            dedup_nonce: self.number("dedup_nonce")?,
            recalled_at: self.number("recalled_at")?.map(UnixMillis),
            plan,
            partitions: self.partitions()?,
            targeted: self.count("targeted")?,
            outcomes: self.outcomes()?,
            retried: self.retried()?,
            broadcast: broadcast.transpose()?,
        })
    }
}

/// Reads an expanded entry; none if the hash does not exist.
pub(in crate::redis) fn read(
    message: &MessageId,
    value: Value,
) -> Result<Option<Entry>, IndexError> {
    let fields: BTreeMap<_, _> = reply::fields(value)?.into_iter().collect();
    if fields.is_empty() {
        return Ok(None);
    }
    Fields { message, fields }.entry().map(Some)
}

/// Reads a partition; one that was never claimed has no field.
pub(super) fn read_partition(
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

pub(super) fn leftovers_text(leftovers: &[Leftover]) -> Result<String, IndexError> {
    if leftovers.is_empty() {
        return Ok(String::new());
    }
    serde_json::to_string(leftovers).map_err(|error| IndexError::Corrupt(error.to_string()))
}

pub(super) fn read_plan(json: &str) -> Result<Plan, IndexError> {
    serde_json::from_str(json).map_err(|error| IndexError::Corrupt(format!("a plan: {error}")))
}

pub(super) fn plan_text(plan: &Plan) -> Result<String, IndexError> {
    serde_json::to_string(plan).map_err(|error| IndexError::Corrupt(error.to_string()))
}

fn failed(reason: FailReason) -> String {
    format!("failed:{}", reason.name())
}

fn retried(reason: RetryReason) -> String {
    format!("retried:{}", reason.name())
}

/// The fields of the counters that are not 0.
pub(super) fn counters(counts: &Counts) -> impl Iterator<Item = (String, u64)> {
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

/// All fields of an entry.
pub(super) fn fields_of(entry: &Entry) -> Result<Vec<(String, String)>, IndexError> {
    let mut fields = vec![
        ("app".to_owned(), entry.app_id.to_string()),
        ("accepted_at".to_owned(), entry.accepted_at.0.to_string()),
    ];
    let times = [("expires_at", entry.expires_at), ("recalled_at", entry.recalled_at)];
    let times = times.into_iter().filter_map(|(name, at)| Some((name, at?.0)));
    let numbers = times.chain(entry.dedup_nonce.map(|dedup_nonce| ("dedup_nonce", dedup_nonce)));
    fields.extend(numbers.map(|(name, number)| (name.to_owned(), number.to_string())));
    if let Some(plan) = &entry.plan {
        fields.push(("plan".to_owned(), plan_text(plan)?));
        fields.push(("partitions".to_owned(), plan.partitions.len().to_string()));
    }
    if let Some(note) = &entry.broadcast {
        let json = serde_json::to_string(note);
        let json = json.map_err(|error| IndexError::Corrupt(error.to_string()))?;
        fields.push((BROADCAST.to_owned(), json));
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
