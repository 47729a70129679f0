//! Failed logins in the audit log of a program.

use std::{collections::BTreeMap, time::Duration};

use push_tests::eventually;
use serde_json::Value;

/// Deadline for a line of a program that logs often.
const DEADLINE: Duration = Duration::from_secs(60);

/// Flags of a program that logs failed logins at once.
pub(crate) const AT_ONCE: [&str; 4] = ["--log-format", "json", "--tune", "activity-interval=100ms"];
/// Flags of a program that logs them when it stops.
pub(crate) const AT_STOP: [&str; 4] = ["--log-format", "json", "--tune", "activity-interval=1h"];

/// The lines about failed logins, as `program=ingest app=news`, each with its number. The end of the log
/// may be a line that is still being written.
pub(crate) fn failed_logins(log: &str) -> Vec<(String, u64)> {
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let audit = events.filter(|event| event["target"] == "audit");
    let failed = audit.filter(|event| event["action"] == "login_failed");
    failed.map(|event| (whose(&event), event["count"].as_u64().expect("a number"))).collect()
}

fn whose(event: &Value) -> String {
    let field = |name| Some(format!("{name}={}", event.get(name)?.as_str()?));
    ["program", "by", "app"].into_iter().filter_map(field).collect::<Vec<_>>().join(" ")
}

/// Waits until the lines of a log have these numbers together, and no other.
pub(crate) async fn wait_for(log: impl Fn() -> String, expected: &[(&str, u64)]) {
    let expected: BTreeMap<String, u64> =
        expected.iter().map(|(whose, count)| ((*whose).to_owned(), *count)).collect();
    eventually("the failed logins are in the audit log", DEADLINE, async || {
        let mut seen = BTreeMap::new();
        for (whose, count) in failed_logins(&log()) {
            assert!(count > 0, "a line about no failed login: {whose}");
            *seen.entry(whose).or_insert(0) += count;
        }
        if seen == expected { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
}
