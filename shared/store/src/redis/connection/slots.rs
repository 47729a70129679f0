//! The hash slots of each master of a cluster, as `CLUSTER SLOTS` reports them.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use futures::stream::{FuturesUnordered, StreamExt as _};
use redis::{ErrorKind, RedisError, Value};
use tokio::time::timeout;

use super::{
    failure::{Failure, timed_out},
    node::Node,
    reply,
    request::Request,
    server::Address,
};
use crate::IndexError;

/// Hash slots, by their masters.
pub(super) type Masters = Vec<(RangeInclusive<u16>, Address)>;

/// A range of hash slots and its master.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::redis) struct Row {
    pub(in crate::redis) slots: RangeInclusive<u16>,
    pub(in crate::redis) host: Host,
    pub(in crate::redis) port: u16,
    pub(in crate::redis) id: String,
}

/// The host of a node, as far as it says that to clients (`cluster-preferred-endpoint-type`).
#[derive(Debug, PartialEq, Eq)]
pub(in crate::redis) enum Host {
    Named(String),
    /// The host at which the node that answered was asked.
    Asked,
    Unknown,
}

/// Reads the answer of `CLUSTER SLOTS`: rows of first slot, last slot, master, replicas. A node is
/// its host, its port and its id.
pub(in crate::redis) fn rows(answer: Value) -> Result<Vec<Row>, IndexError> {
    reply::list(answer)?.into_iter().map(row).collect()
}

fn row(row: Value) -> Result<Row, IndexError> {
    let mut row = reply::list(row)?.into_iter();
    let slots = number(row.next())?..=number(row.next())?;
    let mut node = reply::list(row.next().unwrap_or_default())?.into_iter();
    let host = match reply::text(node.next().unwrap_or_default())? {
        host if host.is_empty() => Host::Asked,
        host if host == "?" => Host::Unknown,
        host => Host::Named(host),
    };
    let port = number(node.next())?;
    Ok(Row { slots, host, port, id: reply::text(node.next().unwrap_or_default())? })
}

fn number(value: Option<Value>) -> Result<u16, IndexError> {
    let number = reply::number(value.unwrap_or_default())?.unwrap_or_default();
    u16::try_from(number).map_err(|_| IndexError::Corrupt("a hash slot or a port".to_owned()))
}

/// Asks all of these nodes for the masters. The first that knows them counts.
pub(super) async fn ask(nodes: &[Arc<Node>], within: Duration) -> Result<Masters, Failure> {
    let answer = timeout(within, first(nodes.iter().map(|node| masters_of(node)))).await;
    answer.unwrap_or_else(|_| Err(Failure::before_sending(timed_out())))
}

async fn masters_of(node: &Node) -> Result<Masters, Failure> {
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    let answer = node.execute(Request::Command(&slots)).await.map_err(Failure::before)?;
    let asked = node.endpoint().address();
    let master = |Row { slots, host, port, .. }| {
        let host = match host {
            Host::Named(host) => host,
            Host::Asked => asked.as_ref()?.host.clone(),
            Host::Unknown => return None,
        };
        Some((slots, Address { host, port }))
    };
    let rows = rows(answer).map_err(|_| no_master())?;
    let masters: Masters = rows.into_iter().filter_map(master).collect();
    if masters.is_empty() { Err(no_master()) } else { Ok(masters) }
}

/// The first answer; if there is none, a failure.
pub(super) async fn first<T>(
    answers: impl Iterator<Item = impl Future<Output = Result<T, Failure>>>,
) -> Result<T, Failure> {
    let mut answers: FuturesUnordered<_> = answers.collect();
    let mut failed: Option<Failure> = None;
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(answer) => return Ok(answer),
            // A server that says why says more than one that cannot be reached.
            Err(failure) if failed.is_none() || !failure.is_silence() => failed = Some(failure),
            Err(_) => {}
        }
    }
    Err(failed.unwrap_or_else(no_master))
}

pub(super) fn no_master() -> Failure {
    let text = "no node of the cluster has a hash slot";
    Failure::before_sending(RedisError::from((ErrorKind::ClusterConnectionNotFound, text)))
}
