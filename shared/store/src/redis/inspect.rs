//! Findings of `pushctl doctor` about a Redis: settings that risk data, the version, and the clock.

use std::{collections::HashMap, time::Duration};

use push_model::time::UnixMillis;

use super::{
    connection::{Link, reply},
    keys::Keys,
    rights,
};
use crate::{Finding, IndexError};

/// The oldest release whose scripts and commands suffice.
const MIN_VERSION: (u32, u32) = (6, 2);

/// The most that the clocks may differ: the default of the workers' `--clock-allowance`.
const CLOCK_ALLOWANCE: Duration = Duration::from_secs(1);

/// From this share on, the memory is nearly full.
const FULL_PERCENT: u64 = 80;

/// The entries and the bytes of a value up to which Redis must keep hashes packed, so that a ledger
/// page is.
const PACKED: (u64, u64) = (512, 64);

/// The lines `name:value` of INFO and CLUSTER INFO.
type Info = HashMap<String, String>;

/// Checks the rights, the settings, the memory and the clock of every node.
///
/// # Errors
/// If a node does not answer.
pub async fn inspect(link: &Link, keys: &Keys) -> Result<Vec<Finding>, IndexError> {
    match (rights::missing(link, keys).await, state(link).await) {
        (None, state) => state,
        (Some(rights), Ok(state)) => Ok([vec![rights], state].concat()),
        // A right to look is among those that are missing.
        (Some(rights), Err(IndexError::Refused(_))) => Ok(vec![rights]),
        (Some(_), Err(error)) => Err(error),
    }
}

async fn state(link: &Link) -> Result<Vec<Finding>, IndexError> {
    let mut findings = Vec::new();
    for (node, info) in infos(link, &redis::cmd("INFO")).await? {
        findings.extend([version(&node, &info), persistence(&node, &info), memory(&node, &info)]);
    }
    for (node, settings) in settings(link, "maxmemory-policy").await {
        findings.push(eviction(&node, settings.get("maxmemory-policy").map(String::as_str)));
    }
    for (node, settings) in settings(link, "hash-max-*").await {
        findings.extend(packed_pages(&node, &settings));
    }
    if link.is_cluster() {
        for (node, info) in infos(link, redis::cmd("CLUSTER").arg("INFO")).await? {
            findings.push(cluster(&node, &info));
        }
    }
    let asked = UnixMillis::now();
    let answers = link.each_node(&redis::cmd("TIME")).await?;
    let answered = UnixMillis::now();
    for (node, time) in answers {
        findings.push(clock(&node, unix_millis(time)?, asked, answered));
    }
    Ok(findings)
}

/// Reads an answer of TIME: seconds, and microseconds within the second.
fn unix_millis(value: redis::Value) -> Result<UnixMillis, IndexError> {
    let mut numbers = reply::list(value)?.into_iter().map(reply::number);
    let mut next = || numbers.next().transpose().map(|number| number.flatten().unwrap_or_default());
    let (seconds, micros) = (next()?, next()?);
    Ok(UnixMillis(seconds.saturating_mul(1000).saturating_add(micros / 1000)))
}

/// Compares a clock with that of this machine, which was read before (`asked`) and after
/// (`answered`) the request: only what the round trip does not explain counts as a difference.
fn clock(node: &str, theirs: UnixMillis, asked: UnixMillis, answered: UnixMillis) -> Finding {
    const SUBJECT: &str = "redis clock";
    let (ahead, behind) = (theirs.since(answered), asked.since(theirs));
    let (differs, which) = if ahead > behind { (ahead, "ahead of") } else { (behind, "behind") };
    if differs.is_zero() {
        let within = answered.since(asked).as_millis();
        return Finding::ok(SUBJECT, at(node, &format!("this machine's, within {within} ms")));
    }
    let detail = at(node, &format!("{} ms {which} this machine's", differs.as_millis()));
    if differs < CLOCK_ALLOWANCE {
        return Finding::ok(SUBJECT, detail);
    }
    let detail = format!("{detail}: broadcasts may miss new devices");
    Finding::warning(SUBJECT, detail, "synchronise both clocks (NTP)")
}

async fn infos(link: &Link, cmd: &redis::Cmd) -> Result<Vec<(String, Info)>, IndexError> {
    let answers = link.each_node(cmd).await?;
    answers.into_iter().map(|(node, value)| Ok((node, info(&reply::text(value)?)))).collect()
}

fn info(text: &str) -> Info {
    let line = |line: &str| {
        let (name, value) = line.trim_end().split_once(':')?;
        Some((name.to_owned(), value.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// Returns what CONFIG GET answers; nothing if it is not permitted, as with many hosting providers.
async fn settings(link: &Link, pattern: &str) -> Vec<(String, Info)> {
    match link.each_node(redis::cmd("CONFIG").arg("GET").arg(pattern)).await {
        Ok(answers) => answers
            .into_iter()
            .map(|(node, value)| {
                (node, reply::fields(value).unwrap_or_default().into_iter().collect())
            })
            .collect(),
        Err(_) => vec![(String::new(), Info::new())],
    }
}

/// Returns what was found at a node; a server that is no cluster has none.
fn at(node: &str, detail: &str) -> String {
    if node.is_empty() { detail.to_owned() } else { format!("{node}: {detail}") }
}

fn version(node: &str, info: &Info) -> Finding {
    const SUBJECT: &str = "redis version";
    let text = info.get("redis_version").map_or("", String::as_str);
    let mut parts = text.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let (major, minor) = MIN_VERSION;
    if version >= MIN_VERSION {
        Finding::ok(SUBJECT, at(node, text))
    } else {
        let detail = at(node, &format!("{text} is too old"));
        Finding::error(SUBJECT, detail, format!("use {major}.{minor} or later"))
    }
}

fn persistence(node: &str, info: &Info) -> Finding {
    const SUBJECT: &str = "appendonly";
    let failed = ["aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status"];
    if let Some(what) = failed.into_iter().find(|name| info.get(*name).is_some_and(|of| of != "ok"))
    {
        let detail =
            format!("{what} is not ok: Redis could not write its files and may refuse writes");
        let mend = "make room on its disk, and see its log";
        return Finding::error(SUBJECT, at(node, &detail), mend);
    }
    if info.get("aof_enabled").is_some_and(|on| on == "1") {
        Finding::ok(SUBJECT, at(node, "on"))
    } else {
        let detail = "off: a crash loses what came after the last snapshot, registrations and \
                      checkpoints included";
        Finding::warning(SUBJECT, at(node, detail), "set `appendonly yes`")
    }
}

/// Returns how full the memory of a server is.
fn memory(node: &str, info: &Info) -> Finding {
    const SUBJECT: &str = "redis memory";
    let number = |name| info.get(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let (used, limit, machine) =
        (number("used_memory"), number("maxmemory"), number("total_system_memory"));
    let (of, what) =
        if limit > 0 { (limit, "maxmemory") } else { (machine, "the machine's memory") };
    let detail = at(node, &format!("{} of {} ({what})", mebibytes(used), mebibytes(of)));
    if of == 0 || used.saturating_mul(100) < of.saturating_mul(FULL_PERCENT) {
        return Finding::ok(SUBJECT, detail);
    }
    let (then, mend) = if limit > 0 {
        ("writes are refused when it is full", "raise maxmemory, or lower --ledger-limit")
    } else {
        (
            "a full machine ends Redis",
            "set maxmemory, and give the machine more memory or lower --ledger-limit",
        )
    };
    Finding::warning(SUBJECT, format!("{detail}: {then}"), mend)
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes / (1024 * 1024))
}

/// Returns true if Redis stores ledger pages packed: hashes of some hundred short fields.
fn packed_pages(node: &str, settings: &Info) -> Option<Finding> {
    const SUBJECT: &str = "hash-max-listpack";
    // Redis before 7.0 calls them ziplists, and later ones answer under both names.
    let number = |end: &str| {
        ["listpack", "ziplist"]
            .iter()
            .find_map(|kind| settings.get(&format!("hash-max-{kind}-{end}"))?.parse::<u64>().ok())
    };
    let (entries, value) = (number("entries")?, number("value")?);
    let (most, longest) = PACKED;
    let detail = at(node, &format!("{entries} entries of {value} bytes"));
    Some(if entries >= most && value >= longest {
        Finding::ok(SUBJECT, detail)
    } else {
        let mend = format!(
            "set `hash-max-listpack-entries {most}` and `hash-max-listpack-value {longest}`"
        );
        let detail = format!("{detail}: the ledger takes several times the memory");
        Finding::warning(SUBJECT, detail, mend)
    })
}

fn eviction(node: &str, policy: Option<&str>) -> Finding {
    const SUBJECT: &str = "maxmemory-policy";
    match policy {
        Some("noeviction") => Finding::ok(SUBJECT, at(node, "noeviction")),
        Some(policy) => {
            let detail =
                format!("{policy}: a full Redis would drop devices and apps without a word");
            Finding::error(SUBJECT, at(node, &detail), "set `maxmemory-policy noeviction`")
        }
        None => {
            let detail = at(node, "cannot be read here");
            Finding::warning(SUBJECT, detail, "make sure that it is noeviction")
        }
    }
}

fn cluster(node: &str, info: &Info) -> Finding {
    const SUBJECT: &str = "cluster state";
    match info.get("cluster_state").map(String::as_str) {
        Some("ok") => Finding::ok(SUBJECT, at(node, "ok")),
        state => {
            let detail = format!("{}: slots are not served", state.unwrap_or("unknown"));
            Finding::error(SUBJECT, at(node, &detail), "see `redis-cli --cluster check`")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    #[test]
    fn a_redis_that_may_drop_devices_is_an_error() {
        assert_eq!(eviction("", Some("noeviction")).level, Level::Ok);
        assert_eq!(eviction("", Some("allkeys-lru")).level, Level::Error);
        assert_eq!(eviction("", None).level, Level::Warning);
    }

    #[test]
    fn a_redis_whose_memory_is_nearly_full_is_a_warning_that_says_of_what() {
        let of = |used: u64, limit: u64| {
            let text = format!(
                "used_memory:{used}\r\nmaxmemory:{limit}\r\ntotal_system_memory:2000000\r\n"
            );
            memory("", &info(&text))
        };
        assert_eq!([of(79, 100).level, of(1_500_000, 0).level], [Level::Ok; 2]);
        let (full, machine) = (of(80, 100), of(1_600_000, 0));
        assert_eq!([full.level, machine.level], [Level::Warning; 2]);
        assert!(full.remedy().unwrap().contains("raise maxmemory"), "{full:?}");
        assert!(machine.remedy().unwrap().contains("set maxmemory"), "{machine:?}");
        assert_eq!(memory("", &Info::new()).level, Level::Ok, "nothing is known");
    }

    #[test]
    fn ledger_pages_that_are_not_packed_are_a_warning() {
        let of = |kind: &str, entries: u64| {
            let text = format!("hash-max-{kind}-entries:{entries}\r\nhash-max-{kind}-value:64\r\n");
            packed_pages("", &info(&text)).unwrap()
        };
        assert_eq!([of("listpack", 512).level, of("ziplist", 600).level], [Level::Ok; 2]);
        let found = of("listpack", 128);
        assert_eq!(found.level, Level::Warning);
        assert!(found.remedy().unwrap().contains("hash-max-listpack-entries 512"), "{found:?}");
        assert_eq!(packed_pages("", &Info::new()), None);
    }

    #[test]
    fn a_redis_that_could_not_write_its_file_is_an_error() {
        let of = |text: &str| persistence("", &info(text)).level;
        assert_eq!(of("aof_enabled:1\r\naof_last_write_status:ok\r\n"), Level::Ok);
        assert_eq!(of("aof_enabled:1\r\naof_last_write_status:err\r\n"), Level::Error);
        assert_eq!(of("aof_enabled:0\r\n"), Level::Warning);
    }

    #[test]
    fn versions_compare_as_numbers() {
        let of = |text: &str| version("", &info(&format!("redis_version:{text}\r\n"))).level;
        assert_eq!([of("6.2.0"), of("7.0.15"), of("10.0.0")], [Level::Ok; 3]);
        assert_eq!([of("6.0.16"), of("5.0"), of("")], [Level::Error; 3]);
    }

    #[test]
    fn a_clock_differs_by_what_the_round_trip_does_not_explain() {
        let of = |theirs| clock("", UnixMillis(theirs), UnixMillis(5_000), UnixMillis(5_020));
        assert_eq!(of(5_010).detail, "this machine's, within 20 ms");
        assert_eq!(
            (of(5_120).level, of(5_120).detail.as_str()),
            (Level::Ok, "100 ms ahead of this machine's")
        );
        assert_eq!((of(6_020).level, of(4_000).level), (Level::Warning, Level::Warning));
        assert!(of(4_000).detail.starts_with("1000 ms behind this machine's: "));
    }

    #[test]
    fn a_finding_of_a_cluster_names_its_node() {
        let found = cluster("host:7000", &info("cluster_state:fail\r\n"));
        assert_eq!(found.level, Level::Error);
        assert!(found.detail.starts_with("host:7000: fail"), "{}", found.detail);
    }
}
