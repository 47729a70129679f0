//! A RabbitMQ cluster of three nodes, each of which can be killed and restarted.

use std::time::Duration;

use super::{RabbitMq, ServerError};
use crate::eventually;

/// Nodes of a cluster: the fewest of which one may be lost.
const NODES: usize = 3;
/// Deadline for the nodes to find each other.
const AGREEMENT_DEADLINE: Duration = Duration::from_secs(60);
/// An Erlang expression: how many nodes a node sees running.
const RUNNING: &str = "length(rabbit_nodes:all_running()).";

/// A RabbitMQ cluster that runs until it is dropped.
#[derive(Debug)]
pub struct RabbitMqCluster {
    nodes: Vec<RabbitMq>,
}

impl RabbitMqCluster {
    /// Starts the nodes and waits until they have found each other. This takes 10 s or more.
    pub async fn start() -> Result<Self, ServerError> {
        let cluster = Self { nodes: RabbitMq::start_cluster(NODES).await? };
        cluster.wait_until_whole().await;
        Ok(cluster)
    }

    /// `amqp://guest:guest@127.0.0.1:port,127.0.0.1:port,…/%2f`
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.nodes.iter().map(RabbitMq::address).collect();
        format!("amqp://guest:guest@{}/%2f", addresses.join(","))
    }

    /// The nodes, to kill, freeze and restart them.
    pub fn nodes(&mut self) -> &mut [RabbitMq] {
        &mut self.nodes
    }

    /// Waits until a queue, declared a moment ago, would survive the kill of any node.
    pub async fn wait_until_known_on_disk(&self, queue: &str) {
        for node in &self.nodes {
            node.wait_until_known_on_disk(queue).await;
        }
    }

    /// Waits until the first node sees all nodes running.
    pub async fn wait_until_whole(&self) {
        let Some(first) = self.nodes.first() else { return };
        eventually("the RabbitMQ cluster is whole", AGREEMENT_DEADLINE, async || {
            let seen = first.control(&["eval", RUNNING]).await?;
            if seen.trim() == NODES.to_string() { Ok(()) } else { Err(seen) }
        })
        .await;
    }
}
