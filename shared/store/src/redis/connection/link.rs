//! A connection to Redis or Redis Cluster that many callers share, that answers within a bounded
//! time, and that is made anew after it breaks.
//!
//! The reconnecting connections of the `redis` crate are not used as they are. Its
//! `ConnectionManager` does not reconnect after a time-out, so it never leaves a server that
//! vanished without closing the connection (a host that lost power, a firewall that dropped its
//! state); and building a cluster connection can wait without end. So a connection is thrown away
//! here after every error that it may be the cause of, time-outs included, and is made anew under a
//! time-out of its own, by one caller at a time, and at most every [`RECONNECT_PAUSE`].
//!
//! The cluster connection of the crate would silently send a request again after its connection
//! broke: a step that counts would be counted twice, or refused because its own first try won. So
//! it is built without retries, and the redirections that it then leaves to its user are followed
//! here.

use std::{
    fmt,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{
    Cmd, Pipeline, RedisError, Value,
    cluster_routing::{MultipleNodeRoutingInfo, ResponsePolicy, RoutingInfo},
};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::{
    failure::{Failure, Redirection},
    reply,
    server::{Connection, Request, Server, timed_out},
};
use crate::{IndexError, redis::RedisSettings};

/// For this long after a failed attempt to connect, calls fail immediately instead of trying again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// The most redirections of a cluster that one request follows.
const MAX_REDIRECTIONS: u32 = 3;

/// A shared connection and what is needed to make it anew.
pub struct Link {
    server: Server,
    settings: RedisSettings,
    current: RwLock<Option<NumberedConnection>>,
    /// Locked while a caller connects. When the last attempt failed, and why; none if it succeeded.
    last_failure: Mutex<Option<(Instant, RedisError)>>,
    /// The number of connections made.
    connections_made: AtomicU64,
}

#[derive(Clone)]
struct NumberedConnection {
    number: u64,
    connection: Connection,
}

impl Link {
    pub(in crate::redis) fn new(server: Server, settings: RedisSettings) -> Self {
        Self {
            server,
            settings,
            current: RwLock::default(),
            last_failure: Mutex::default(),
            connections_made: AtomicU64::new(0),
        }
    }

    /// Returns true if the server is a cluster.
    pub fn is_cluster(&self) -> bool {
        self.server.is_cluster()
    }

    /// The number of the current connection, which no other has; none while there is none.
    pub fn connection_number(&self) -> Option<u64> {
        self.current().map(|current| current.number)
    }

    /// Makes a connection if there is none.
    pub async fn connect(&self) -> Result<(), IndexError> {
        self.connection().await?;
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
    pub(in crate::redis) async fn repeatable(&self, cmd: &Cmd) -> Result<Value, Failure> {
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

    /// Asks every node of a cluster that holds data, and gives the answer that comes first: for what
    /// each of them knows, while one of them may be away.
    pub(in crate::redis) async fn first_node(&self, cmd: &Cmd) -> Result<Value, IndexError> {
        let NumberedConnection { connection, .. } = self.connection().await?;
        let Connection::Cluster(mut cluster) = connection else { return self.read(cmd).await };
        let policy = Some(ResponsePolicy::OneSucceeded);
        let routing = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, policy));
        let answer =
            timeout(self.settings.response_timeout, cluster.route_command(cmd.clone(), routing))
                .await
                .unwrap_or_else(|_| Err(timed_out()));
        Ok(answer.map_err(Failure::after_sending)?)
    }

    /// Asks every node that holds data, and gives the address and the answer of each. The address
    /// of a single server is empty here.
    pub async fn each_node(&self, cmd: &Cmd) -> Result<Vec<(String, Value)>, IndexError> {
        let NumberedConnection { connection, .. } = self.connection().await?;
        let Connection::Cluster(mut cluster) = connection else {
            return Ok(vec![(String::new(), self.read(cmd).await?)]);
        };
        let routing = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        let limit = self.settings.connect_timeout + self.settings.response_timeout;
        let answer = timeout(limit, cluster.route_command(cmd.clone(), routing))
            .await
            .unwrap_or_else(|_| Err(timed_out()))
            .map_err(Failure::after_sending)?;
        let Value::Map(nodes) = answer else {
            return Err(IndexError::Corrupt("an answer that is not by node".to_owned()));
        };
        let named = |(node, value)| (reply::text(node).unwrap_or_default(), value);
        Ok(nodes.into_iter().map(named).collect())
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

    /// Sends a request to the node that has its keys. A node that redirects a request has not
    /// executed it, so even a request that writes follows a redirection.
    async fn execute(&self, request: Request<'_>) -> Result<Value, Failure> {
        let mut answer = self.execute_at(request, None).await;
        for _ in 0..MAX_REDIRECTIONS {
            let Err(failure) = &answer else { break };
            let node = match (failure.redirection(), request) {
                _ if !self.is_cluster() => break,
                (Some(Redirection::Moved), _) => None,
                (Some(Redirection::Ask { host, port }), Request::Command(_)) => {
                    Some((host.to_owned(), port))
                }
                _ => break,
            };
            answer = self.execute_at(request, node).await;
        }
        answer
    }

    /// Sends a request on the current connection, and throws that away if the failure may be its
    /// fault.
    async fn execute_at(
        &self,
        request: Request<'_>,
        ask_node: Option<(String, u16)>,
    ) -> Result<Value, Failure> {
        let NumberedConnection { number, mut connection } = self.connection().await?;
        let answer = timeout(self.settings.response_timeout, connection.execute(request, ask_node))
            .await
            .unwrap_or_else(|_| Err(timed_out()))
            .map_err(Failure::after_sending);
        if answer.as_ref().is_err_and(Failure::blames_connection) {
            self.discard(number);
        }
        answer
    }

    /// The current connection, made now if there is none.
    async fn connection(&self) -> Result<NumberedConnection, Failure> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let mut last_failure = self.last_failure.lock().await;
        if let Some(current) = self.current() {
            return Ok(current);
        }
        if let Some((when, why)) = &*last_failure
            && when.elapsed() < RECONNECT_PAUSE
        {
            return Err(Failure::before_sending(why.clone()));
        }
        match self.server.connect(&self.settings).await {
            Ok(connection) => {
                *last_failure = None;
                let number = self.connections_made.fetch_add(1, Ordering::Relaxed);
                let made = NumberedConnection { number, connection };
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(made.clone());
                Ok(made)
            }
            Err(error) => {
                *last_failure = Some((Instant::now(), error.clone()));
                Err(Failure::before_sending(error))
            }
        }
    }

    fn current(&self) -> Option<NumberedConnection> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Throws a connection away, unless another call has already replaced it. Calls that are in
    /// flight on it keep it until they end.
    fn discard(&self, number: u64) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|c| c.number == number) {
            *current = None;
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
