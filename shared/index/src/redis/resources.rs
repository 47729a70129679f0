//! What a Redis says of its memory.

use std::collections::HashMap;

use super::{RedisIndex, connection::reply};
use crate::{IndexError, Resources, StoreResources};

impl RedisIndex {
    /// One request to each node.
    pub(super) async fn read_resources(&self) -> Result<Resources, IndexError> {
        let mut info = redis::cmd("INFO");
        info.arg("memory");
        let mut stores = Vec::new();
        for (node, answer) in self.quick.each_node(&info).await? {
            stores.push(memory(node, &reply::text(answer)?));
        }
        let entries = |entries: usize| u64::try_from(entries).unwrap_or(u64::MAX);
        let caches = vec![
            ("slots", entries(self.context.slots.len())),
            ("dictionaries", entries(self.dictionary_cache.len())),
            ("buckets", entries(self.context.buckets.len())),
        ];
        Ok(Resources { stores, caches })
    }
}

/// Reads the section `memory` of INFO. A `maxmemory` of 0 is no limit.
fn memory(node: String, info: &str) -> StoreResources {
    let fields: HashMap<&str, &str> =
        info.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
    let number = |name| fields.get(name).and_then(|value| value.parse::<u64>().ok());
    StoreResources {
        memory: number("used_memory"),
        memory_limit: number("maxmemory").filter(|limit| *limit > 0),
        ..StoreResources::of_node(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redis_without_a_limit_has_none() {
        let of = |info| {
            let StoreResources { memory, memory_limit, .. } = memory(String::new(), info);
            (memory, memory_limit)
        };
        let info = "# Memory\r\nused_memory:1024\r\nused_memory_rss:9\r\nmaxmemory:2048\r\n";
        assert_eq!(of(info), (Some(1024), Some(2048)));
        assert_eq!(of("used_memory:1\r\nmaxmemory:0\r\n"), (Some(1), None));
        assert_eq!(of("# Memory\r\n"), (None, None));
    }
}
