//! Requests to the 256 stripes of the ledger. In a cluster the keys of a stripe are at one node.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use push_model::ids::PageField;
use push_store::{IndexError, redis::connection::reply};
use redis::{Cmd, Pipeline, Value};

use crate::redis::RedisLedger;

/// Requests of a round that are in flight at the same time.
pub(super) const IN_FLIGHT: usize = 16;

impl RedisLedger {
    /// Sends each command to its stripe, and gives the answers in the order of the commands. A
    /// single server gets all commands in one request; in a cluster each stripe is a request of its
    /// own.
    pub(in crate::redis) async fn ask_stripes(
        &self,
        commands: Vec<(u8, Cmd)>,
    ) -> Result<Vec<Value>, IndexError> {
        let numbered: Vec<(usize, (u8, Cmd))> = commands.into_iter().enumerate().collect();
        let requests: Vec<Vec<(usize, (u8, Cmd))>> = match self.bulk.is_cluster() {
            false => vec![numbered],
            true => {
                let mut by_stripe: BTreeMap<u8, Vec<_>> = BTreeMap::new();
                for one in numbered {
                    by_stripe.entry(one.1.0).or_default().push(one);
                }
                by_stripe.into_values().collect()
            }
        };
        let count = requests.iter().map(Vec::len).sum();
        let ask = |request: Vec<(usize, (u8, Cmd))>| async move {
            let (numbers, commands): (Vec<_>, Vec<_>) = request.into_iter().unzip();
            let mut pipe = Pipeline::with_capacity(commands.len());
            for (_, command) in commands {
                pipe.add_command(command);
            }
            if pipe.is_empty() {
                return Ok(Vec::new());
            }
            let answers = self.bulk.read_all(&pipe).await?;
            Ok::<_, IndexError>(numbers.into_iter().zip(answers).collect())
        };
        let answers: Vec<Vec<(usize, Value)>> =
            stream::iter(requests).map(ask).buffer_unordered(IN_FLIGHT).try_collect().await?;
        let mut all = vec![Value::Nil; count];
        for (number, answer) in answers.into_iter().flatten() {
            all[number] = answer;
        }
        Ok(all)
    }
}

/// The command for all fields of a hash.
pub(in crate::redis) fn all_of(key: &str) -> Cmd {
    let mut read = redis::cmd("HGETALL");
    read.arg(key);
    read
}

/// The most records of a page that a round reads: more than a page has, unless something is wrong.
const MOST_RECORDS: usize = 512;

/// The commands for a page: its records, at most [`MOST_RECORDS`], and its memory.
pub(super) fn read_page(key: &str) -> [Cmd; 2] {
    let mut records = redis::cmd("HRANDFIELD");
    records.arg(key).arg(MOST_RECORDS).arg("WITHVALUES");
    [records, memory_usage(key)]
}

/// The fields of a hash whose sizes are read to estimate its memory. By default Redis reads five, and
/// takes them for average: the content of a broadcast is much longer than its other fields.
const MEASURED_FIELDS: usize = 256;

/// The command for the memory that a key takes, in bytes.
pub(super) fn memory_usage(key: &str) -> Cmd {
    let mut usage = redis::cmd("MEMORY");
    usage.arg("USAGE").arg(key).arg("SAMPLES").arg(MEASURED_FIELDS);
    usage
}

/// Reads the records of a page, with their fields.
pub(in crate::redis) fn records_of(page: Value) -> Result<Vec<(PageField, Vec<u8>)>, IndexError> {
    let mut values = reply::list(page)?.into_iter();
    let mut records = Vec::with_capacity(values.len() / 2);
    while let (Some(field), Some(record)) = (values.next(), values.next()) {
        let field = reply::bytes(field)?.unwrap_or_default();
        // The mark of a page that was full is no record.
        if let Ok(field) = field.try_into() {
            records.push((PageField(field), reply::bytes(record)?.unwrap_or_default()));
        }
    }
    Ok(records)
}
