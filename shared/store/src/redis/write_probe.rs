//! Writes a key to see if Redis stores it: one key for a server, one on every master of a cluster.
//!
//! A server that answers may still refuse writes: it became a replica, has too few replicas, no
//! memory or no disk. Only a write shows that. In a cluster each master refuses for itself, and a
//! key is where its hash slot is, so the key of a master is chosen by its number: the first one whose
//! slot is the master's.
//!
//! A master that refuses is a failure of the whole, because an app has devices on all of them. A
//! master that cannot be reached is not, as long as another one stores: requests for keys on the
//! others go on, a replica takes over, and until then the caller says that a part is away.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use futures::future;
use redis::Value;
use tokio::time::timeout;

use super::{
    connection::{
        Link,
        slots::{Host, Row, rows},
    },
    keys::{Keys, write_probe_slot},
};
use crate::{IndexError, Refusal, TakesWrites};

/// The lifetime of the key.
const KEPT: Duration = Duration::from_secs(60);

/// Time after which one master of several counts as unreachable. Less than a check of `/readyz` may
/// take by default, so that a frozen master is told from a frozen cluster.
const ONE_MASTER: Duration = Duration::from_secs(1);

/// Numbers to try for a key on a master: with this many, a master that has one of 16384 hash slots
/// is missed once in ten thousand times.
const MOST_NUMBERS: u32 = 150_000;

/// The hash slots of each master, by its address or id.
type Masters = BTreeMap<String, Vec<RangeInclusive<u16>>>;

/// Writes to every server that takes writes.
///
/// # Errors
/// If a server refuses, or none can be reached.
pub async fn takes_writes(link: &Link, keys: &Keys) -> Result<TakesWrites, IndexError> {
    if !link.is_cluster() {
        write(link, keys.write_probe()).await?;
        return Ok(TakesWrites::default());
    }
    let masters = masters(link.read(redis::cmd("CLUSTER").arg("SLOTS")).await?)?;
    if masters.is_empty() {
        return Err(IndexError::Unreachable("no node of the cluster has a hash slot".into()));
    }
    let written = probe_numbers(&masters).into_iter().map(|(address, number)| async move {
        let written = timeout(ONE_MASTER, write(link, keys.write_probe_of(number))).await;
        (address, written)
    });
    let mut stored = 0;
    let mut unreachable = Vec::new();
    for (address, written) in future::join_all(written).await {
        match written {
            Ok(Ok(())) => stored += 1,
            Ok(Err(IndexError::Refused(why))) => {
                let text = format!("{address}: {why}");
                return Err(IndexError::Refused(match Refusal::of(&*why) {
                    Some(Refusal { reason, .. }) => Refusal { reason: *reason, text }.into(),
                    None => text.into(),
                }));
            }
            Ok(Err(error)) => {
                let why = push_model::causes::with_causes(&error);
                unreachable.push(format!("{address}: {why}"));
            }
            Err(_) => unreachable.push(format!("{address}: no answer")),
        }
    }
    if stored == 0 {
        return Err(IndexError::Unreachable(unreachable.join("; ").into()));
    }
    Ok(TakesWrites { unreachable })
}

async fn write(link: &Link, key: String) -> Result<(), IndexError> {
    let mut write = redis::cmd("SET");
    write.arg(key).arg(1).arg("EX").arg(KEPT.as_secs());
    // A write that may be repeated like a read.
    link.read(&write).await.map(drop)
}

/// The hash slots of each master. A node that does not say its host to clients is called by its id.
fn masters(answer: Value) -> Result<Masters, IndexError> {
    let mut masters = Masters::new();
    for Row { slots, host, port, id } in rows(answer)? {
        let name = match host {
            Host::Named(host) => format!("{host}:{port}"),
            Host::Asked | Host::Unknown => format!("node {id}"),
        };
        masters.entry(name).or_default().push(slots);
    }
    Ok(masters)
}

/// For each master the first number whose key it has.
fn probe_numbers(masters: &Masters) -> Vec<(&str, u32)> {
    let mut left: Vec<_> = masters.iter().collect();
    let mut found = Vec::new();
    for number in 0..MOST_NUMBERS {
        let slot = write_probe_slot(number);
        let owner = left.iter().position(|(_, slots)| slots.iter().any(|of| of.contains(&slot)));
        if let Some(owner) = owner {
            found.push((left.swap_remove(owner).0.as_str(), number));
        }
        if left.is_empty() {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(port: i64) -> Value {
        Value::Array(vec![Value::BulkString(b"10.0.0.1".to_vec()), Value::Int(port)])
    }

    fn row(first: i64, last: i64, port: i64) -> Value {
        Value::Array(vec![Value::Int(first), Value::Int(last), node(port), node(port + 1)])
    }

    #[test]
    fn every_master_has_a_key_however_few_hash_slots_it_has() {
        let answer = Value::Array(vec![
            row(0, 5_000, 1),
            row(5_001, 5_001, 3),
            row(5_002, 9_999, 5),
            row(10_000, 16_383, 1),
        ]);
        let masters = masters(answer).unwrap();
        assert_eq!(masters["10.0.0.1:1"], [0..=5_000, 10_000..=16_383]);
        let numbers = probe_numbers(&masters);
        let addresses: Vec<&str> = numbers.iter().map(|(address, _)| *address).collect();
        assert_eq!(addresses.len(), 3, "{addresses:?}");
        for (address, number) in numbers {
            let slot = write_probe_slot(number);
            assert!(masters[address].iter().any(|slots| slots.contains(&slot)), "{address}");
        }
    }

    #[test]
    fn masters_that_do_not_say_their_host_are_told_apart_by_their_ids() {
        let hosts = [Value::Nil, Value::BulkString(Vec::new()), Value::BulkString(b"?".to_vec())];
        let rows = hosts.into_iter().zip(0..).map(|(host, number)| {
            let id = Value::BulkString(format!("id{number}").into_bytes());
            let node = Value::Array(vec![host, Value::Int(6379), id]);
            Value::Array(vec![Value::Int(number), Value::Int(number), node])
        });
        let masters = masters(Value::Array(rows.collect())).unwrap();
        assert_eq!(masters["node id0"], [0..=0]);
        assert_eq!(masters["node id1"], [1..=1]);
        assert_eq!(masters["node id2"], [2..=2]);
    }

    #[test]
    fn a_key_is_in_the_slot_that_redis_computes() {
        // CLUSTER KEYSLOT of `push:{0}:writable` and of `push:{123456789}:writable`.
        assert_eq!((write_probe_slot(0), write_probe_slot(123_456_789)), (13_907, 12_739));
    }
}
