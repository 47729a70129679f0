//! Memory of Redis and of programs, and the commands of Redis.

use anyhow::Context as _;
use push_tests::{servers::Redis, servers::redis_connection};

/// Bytes that Redis has allocated for its data.
pub(crate) async fn used_memory(redis: &Redis) -> anyhow::Result<u64> {
    info(redis, "memory", "used_memory").await
}

/// The commands that Redis has processed since its start.
pub(crate) async fn commands(redis: &Redis) -> anyhow::Result<u64> {
    info(redis, "stats", "total_commands_processed").await
}

/// A field of a section of INFO.
async fn info(redis: &Redis, section: &str, field: &str) -> anyhow::Result<u64> {
    let client = redis::Client::open(redis.url())?;
    let mut connection = redis_connection(&client).await?;
    let info: redis::InfoDict =
        redis::cmd("INFO").arg(section).query_async(&mut connection).await?;
    info.get(field).with_context(|| format!("Redis does not tell {field}"))
}

/// The peak resident memory of a process, in megabytes; `None` where the system does not tell.
pub(crate) fn peak_memory(process: u32) -> Option<f64> {
    status(process, "VmHWM:")
}

/// The resident memory of a process now, in megabytes; `None` where the system does not tell.
pub(crate) fn resident_memory(process: u32) -> Option<f64> {
    status(process, "VmRSS:")
}

fn status(process: u32, field: &str) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kilobytes: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes / 1000.0 * 1.024)
}
