//! A link to Redis or Redis Cluster that many callers share, that answers within a bounded time, and
//! whose connections are made anew after they break: one connection, or one to each master.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

use redis::{Cmd, Pipeline, Value};

use super::{
    cluster::Cluster,
    failure::Failure,
    node::{Changes, Node},
    request::Request,
    server::Server,
};
use crate::{IndexError, redis::RedisSettings};

/// The shared connections.
pub struct Link {
    nodes: Nodes,
    changes: Changes,
}

enum Nodes {
    One(Node),
    Cluster(Cluster),
}

impl Link {
    pub(in crate::redis) fn new(server: Server, settings: RedisSettings) -> Self {
        let changes = Changes::default();
        let nodes = match server {
            Server::One(endpoint) => {
                Nodes::One(Node::new(endpoint, settings, Arc::clone(&changes)))
            }
            Server::Cluster(seed, others) => {
                Nodes::Cluster(Cluster::new(seed, others, settings, Arc::clone(&changes)))
            }
        };
        Self { nodes, changes }
    }

    /// Returns true if the servers are a cluster.
    pub fn is_cluster(&self) -> bool {
        matches!(self.nodes, Nodes::Cluster(_))
    }

    /// A number that changes whenever a connection is made or lost.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Makes a connection if there is none. In a cluster, to all masters that can be reached when
    /// they become known.
    pub async fn connect(&self) -> Result<(), IndexError> {
        match &self.nodes {
            Nodes::One(node) => node.connect().await?,
            Nodes::Cluster(cluster) => cluster.connect().await?,
        }
        Ok(())
    }

    /// Sends a command that may write.
    pub async fn command(&self, cmd: &Cmd) -> Result<Value, Failure> {
        self.execute(Request::Command(cmd)).await
    }

    /// Sends a command that only reads. If the connection turns out to be broken, as it is after
    /// a restart of the server, the command is sent once more on a new connection.
    pub async fn read(&self, cmd: &Cmd) -> Result<Value, IndexError> {
        Ok(self.execute_repeatable(Request::Command(cmd)).await?)
    }

    /// As [`Link::read`], with the failure as it is.
    pub async fn repeatable(&self, cmd: &Cmd) -> Result<Value, Failure> {
        self.execute_repeatable(Request::Command(cmd)).await
    }

    /// Sends commands that only read, on keys of one hash tag, in this order; in one atomic step if
    /// the pipeline is a transaction.
    pub async fn read_all(&self, pipe: &Pipeline) -> Result<Vec<Value>, IndexError> {
        answers_of(self.execute_repeatable(Request::Pipeline(pipe)).await?, pipe)
    }

    /// Sends commands that may write, on keys of one hash tag, in this order.
    pub async fn commands(&self, pipe: &Pipeline) -> Result<Vec<Value>, IndexError> {
        answers_of(self.execute(Request::Pipeline(pipe)).await?, pipe)
    }

    /// Asks every server that holds data, and gives the address and the answer of each that can be
    /// reached; an error if none can. The address of a single server is empty here.
    pub async fn each_node(&self, cmd: &Cmd) -> Result<Vec<(String, Value)>, IndexError> {
        match &self.nodes {
            Nodes::One(_) => Ok(vec![(String::new(), self.read(cmd).await?)]),
            Nodes::Cluster(cluster) => Ok(cluster.each_master(cmd).await?),
        }
    }

    /// Sends a request that may be sent twice: again on a new connection if the first one was
    /// broken, but not after a time-out.
    async fn execute_repeatable(&self, request: Request<'_>) -> Result<Value, Failure> {
        match self.execute(request).await {
            Err(failure) if failure.blames_connection() && !failure.is_timeout() => {
                self.execute(request).await
            }
            answer => answer,
        }
    }

    async fn execute(&self, request: Request<'_>) -> Result<Value, Failure> {
        match &self.nodes {
            Nodes::One(node) => node.execute(request).await,
            Nodes::Cluster(cluster) => cluster.execute(request).await,
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = if self.is_cluster() { "Redis Cluster" } else { "Redis" };
        f.debug_tuple("Link").field(&server).finish()
    }
}

fn answers_of(answer: Value, pipe: &Pipeline) -> Result<Vec<Value>, IndexError> {
    match answer {
        Value::Array(answers) if answers.len() == pipe.len() => Ok(answers),
        _ => Err(IndexError::Corrupt("a pipeline's answer has another length".to_owned())),
    }
}
