//! Reads the memory use of a Redis.

use std::collections::HashMap;

use super::connection::{Link, reply};
use crate::{IndexError, StoreResources};

/// Reads the memory of every node, with one request to each.
///
/// # Errors
/// If a node does not answer.
pub async fn read(link: &Link) -> Result<Vec<StoreResources>, IndexError> {
    let mut info = redis::cmd("INFO");
    info.arg("memory");
    let mut stores = Vec::new();
    for (node, answer) in link.each_node(&info).await? {
        stores.push(memory(node, &reply::text(answer)?));
    }
    Ok(stores)
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
