//! A Redis Cluster of three masters that share the 16384 hash slots evenly, each with a replica if
//! a test needs that.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use redis::{RedisResult, aio::MultiplexedConnection};
use tokio::{
    process::Command,
    time::{sleep, timeout},
};

use super::{Redis, ServerError, Tls, redis::redis_connection};

/// Masters of a cluster: the fewest that Redis recommends.
const MASTERS: u16 = 3;
/// Hash slots of every Redis Cluster.
const SLOTS: u16 = 16_384;
/// Deadline for the nodes to agree on the cluster.
const AGREEMENT_DEADLINE: Duration = Duration::from_secs(60);
/// Time between two checks whether they agree.
const AGREEMENT_PAUSE: Duration = Duration::from_millis(100);
/// Its name in error messages.
const NAME: &str = "Redis Cluster";

/// A Redis Cluster that runs until it is dropped.
#[derive(Debug)]
pub struct RedisCluster {
    /// The first masters, then the replica of each if there are any.
    nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Starts the nodes, makes them a cluster and waits until all of them say that it is whole.
    pub async fn start() -> Result<Self, ServerError> {
        Self::start_nodes(None).await
    }

    /// Starts one whose nodes have TLS listeners as well, and use TLS with each other.
    pub async fn start_with_tls(tls: Tls) -> Result<Self, ServerError> {
        Self::start_nodes(Some(tls)).await
    }

    async fn start_nodes(tls: Option<Tls>) -> Result<Self, ServerError> {
        let cluster = Self { nodes: three_nodes(tls).await? };
        cluster.introduce().await.map_err(|error| cluster.failure(error.to_string()))?;
        cluster.wait_until_whole().await?;
        Ok(cluster)
    }

    /// Starts one whose masters each have a replica that takes over when they die.
    pub async fn start_with_replicas() -> Result<Self, ServerError> {
        let mut cluster = Self::start().await?;
        cluster.nodes.extend(three_nodes(None).await?);
        cluster.meet_all().await.map_err(|error| cluster.failure(error.to_string()))?;
        cluster.wait_until_whole().await?;
        cluster.replicate().await.map_err(|error| cluster.failure(error.to_string()))?;
        cluster.agree(async || cluster.not_replicated().await).await?;
        Ok(cluster)
    }

    /// `redis-cluster://127.0.0.1:port,127.0.0.1:port,…`
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.nodes.iter().map(Redis::address).collect();
        format!("redis-cluster://{}", addresses.join(","))
    }

    /// `rediss-cluster://localhost:port,localhost:port,…`
    pub fn tls_url(&self) -> String {
        let urls = self.nodes.iter().map(Redis::tls_url);
        let addresses: Vec<String> = urls.map(|url| url.replace("rediss://", "")).collect();
        format!("rediss-cluster://{}", addresses.join(","))
    }

    /// The nodes, to kill, freeze and restart them.
    pub fn nodes(&mut self) -> &mut [Redis] {
        &mut self.nodes
    }

    /// Moves so many hash slots, with their keys, from the first master to the second.
    pub async fn move_slots(&self, count: u16) -> Result<(), ServerError> {
        let [from, to, ..] = self.nodes.as_slice() else { return Ok(()) };
        let id = async |node: &Redis| -> RedisResult<String> {
            let mut connection = connect(node).await?;
            redis::cmd("CLUSTER").arg("MYID").query_async(&mut connection).await
        };
        let ids = async { RedisResult::Ok((id(from).await?, id(to).await?)) };
        let (from_id, to_id) = ids.await.map_err(|error| self.failure(error.to_string()))?;
        let reshard = Command::new("redis-cli")
            .args(["--cluster", "reshard", &from.address(), "--cluster-yes"])
            .args(["--cluster-from", &from_id, "--cluster-to", &to_id])
            .args(["--cluster-slots", &count.to_string()])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        match timeout(AGREEMENT_DEADLINE, reshard).await {
            Ok(Ok(output)) if output.status.success() => self.wait_until_whole().await,
            Ok(Ok(output)) => {
                Err(self.failure(String::from_utf8_lossy(&output.stdout).into_owned()))
            }
            Ok(Err(error)) => Err(self.failure(error.to_string())),
            Err(_) => Err(self.failure("redis-cli does not end".to_owned())),
        }
    }

    /// Waits until every node says that all slots are served and all nodes are known.
    pub async fn wait_until_whole(&self) -> Result<(), ServerError> {
        self.agree(async || self.incomplete().await).await
    }

    /// Asks until no node differs; if one differs for too long, its answer is the failure.
    async fn agree(
        &self,
        differing: impl AsyncFn() -> RedisResult<Option<String>>,
    ) -> Result<(), ServerError> {
        let started = Instant::now();
        loop {
            let seen = match differing().await {
                Ok(None) => return Ok(()),
                Ok(Some(node)) => node,
                Err(error) => error.to_string(),
            };
            if started.elapsed() > AGREEMENT_DEADLINE {
                return Err(self.failure(seen));
            }
            sleep(AGREEMENT_PAUSE).await;
        }
    }

    async fn introduce(&self) -> RedisResult<()> {
        for (index, node) in (0..MASTERS).zip(&self.nodes) {
            let mut connection = connect(node).await?;
            let slots = share(index);
            redis::cmd("CLUSTER")
                .arg("ADDSLOTSRANGE")
                .arg(slots.start)
                .arg(slots.end - 1)
                .query_async::<()>(&mut connection)
                .await?;
            // Without distinct epochs the nodes would first have to resolve a collision of them.
            redis::cmd("CLUSTER")
                .arg("SET-CONFIG-EPOCH")
                .arg(index + 1)
                .query_async::<()>(&mut connection)
                .await?;
        }
        self.meet_all().await
    }

    async fn meet_all(&self) -> RedisResult<()> {
        let [first, ..] = self.nodes.as_slice() else { return Ok(()) };
        let (port, bus) = first.ports();
        for node in &self.nodes {
            redis::cmd("CLUSTER")
                .arg("MEET")
                .arg("127.0.0.1")
                .arg(port)
                .arg(bus)
                .query_async::<()>(&mut connect(node).await?)
                .await?;
        }
        Ok(())
    }

    /// Makes each node of the second half a replica of one of the first.
    async fn replicate(&self) -> RedisResult<()> {
        let (masters, replicas) = self.nodes.split_at(self.nodes.len() / 2);
        for (master, replica) in masters.iter().zip(replicas) {
            let id: String =
                redis::cmd("CLUSTER").arg("MYID").query_async(&mut connect(master).await?).await?;
            redis::cmd("CLUSTER")
                .arg("REPLICATE")
                .arg(id)
                .query_async::<()>(&mut connect(replica).await?)
                .await?;
        }
        Ok(())
    }

    /// The answer of a node that does not know every replica yet, or of a replica that has no link
    /// to its master yet.
    async fn not_replicated(&self) -> RedisResult<Option<String>> {
        let replicas = self.nodes.len() / 2;
        for node in &self.nodes {
            let mut connection = connect(node).await?;
            let nodes: String =
                redis::cmd("CLUSTER").arg("NODES").query_async(&mut connection).await?;
            if nodes.lines().filter(|line| line.contains("slave")).count() != replicas {
                return Ok(Some(nodes));
            }
        }
        for node in self.nodes.iter().skip(replicas) {
            let mut connection = connect(node).await?;
            let info: String =
                redis::cmd("INFO").arg("replication").query_async(&mut connection).await?;
            if !info.contains("master_link_status:up") {
                return Ok(Some(info));
            }
        }
        Ok(None)
    }

    /// The answer of the first node that misses slots or nodes.
    async fn incomplete(&self) -> RedisResult<Option<String>> {
        let known = format!("cluster_known_nodes:{}", self.nodes.len());
        for node in &self.nodes {
            let mut connection = connect(node).await?;
            let info: String =
                redis::cmd("CLUSTER").arg("INFO").query_async(&mut connection).await?;
            if !(info.contains("cluster_state:ok") && info.contains(&known)) {
                return Ok(Some(info));
            }
        }
        Ok(None)
    }

    fn failure(&self, last: String) -> ServerError {
        let log = "see the nodes".to_owned();
        ServerError::Silent { name: NAME, last, log }
    }
}

async fn three_nodes(tls: Option<Tls>) -> Result<Vec<Redis>, ServerError> {
    futures::future::try_join_all((0..MASTERS).map(|_| Redis::start_node(tls.clone()))).await
}

/// The hash slots of one master.
fn share(index: u16) -> std::ops::Range<u16> {
    let at = |n: u16| u32::from(SLOTS) * u32::from(n) / u32::from(MASTERS);
    let slot = |n| u16::try_from(at(n)).unwrap_or(SLOTS);
    slot(index)..slot(index + 1)
}

async fn connect(node: &Redis) -> RedisResult<MultiplexedConnection> {
    redis_connection(&redis::Client::open(node.url())?).await
}
