//! The reports of running programs on their operations listeners: if they are ready, and which version
//! they are. All programs of a deployment should have the version of the program that asks.

use std::time::Duration;

use futures::future::join_all;
use push_boot::build_info;
use push_store::{Finding, Level};
use serde::Deserialize;

use super::{http::client, proxies};
use crate::server::Server;

const SUBJECT: &str = "programs";
const READINESS: &str = "program readiness";
const VERSION: &str = "program version";

/// The time limit for an answer; a program answers from its memory.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The most that is read of an answer, in bytes.
const MAX_ANSWER: u64 = 16 * 1024 * 1024;

/// The metric that says which build a program is.
const BUILD: &str = "push_build_info{";

/// The answer of `/readyz`, of this version or of another one.
#[derive(Debug, Deserialize)]
struct Report {
    ready: bool,
    status: String,
    parts: Vec<Part>,
}

#[derive(Debug, Deserialize)]
struct Part {
    name: String,
    status: String,
    /// The reason if it is not `ok`.
    #[serde(default)]
    detail: Option<String>,
}

/// The build of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Build<'a> {
    version: &'a str,
    revision: &'a str,
}

/// The build of this program.
const OWN: Build<'static> = Build { version: build_info::NUMBER, revision: build_info::REVISION };

/// Asks the programs with these operations listeners, all at the same time.
pub(in crate::doctor) async fn findings(listeners: Vec<Server>) -> Vec<Finding> {
    if listeners.is_empty() {
        let how = "name the operations listeners of ingests, workers and brokers with --ops";
        return vec![Finding::skipped(SUBJECT, how)];
    }
    let asked = listeners.into_iter().map(async |listener| {
        let url = listener.to_string();
        let asked = tokio::task::spawn_blocking(move || ask(&listener.to_string())).await;
        asked.unwrap_or_else(|error| vec![unreachable(&url, &error.to_string())])
    });
    join_all(asked).await.concat()
}

fn ask(url: &str) -> Vec<Finding> {
    let client = client(TIMEOUT);
    let get = |path: &str| {
        let mut answer = client.get(format!("{url}{path}")).call()?;
        let body = answer.body_mut().with_config().limit(MAX_ANSWER).read_to_string()?;
        Ok::<_, ureq::Error>((answer.status().as_u16(), body))
    };
    let mut findings = match get("/readyz") {
        Ok((status, body)) => match serde_json::from_str(&body) {
            Ok(report) => judge_readiness(url, &report),
            Err(_) => {
                let why = format!("its answer to /readyz, of status {status}, is no report");
                return vec![unreachable(url, &why)];
            }
        },
        Err(error) => return vec![unreachable(url, &error.to_string())],
    };
    let version = match get("/metrics") {
        Ok((200, metrics)) => {
            findings.extend(proxies::judge(url, &metrics));
            judge_version(url, &metrics, OWN)
        }
        Ok((status, _)) => Finding::warning(
            VERSION,
            format!("{url} answers {status} to /metrics"),
            "run doctor again once it has started",
        ),
        Err(error) => unreachable(url, &error.to_string()),
    };
    findings.push(version);
    findings
}

fn unreachable(url: &str, why: &str) -> Finding {
    Finding::error(
        SUBJECT,
        format!("{url}: {why}"),
        "start it, or check --ops: it names what is --ops-listen of the program, which by default \
         only its own machine reaches",
    )
}

/// Returns a finding for each part that does not do its work, or one for the whole program.
fn judge_readiness(url: &str, report: &Report) -> Vec<Finding> {
    let failed = report.parts.iter().filter(|part| part.status != "ok");
    let mut findings: Vec<Finding> = failed.map(|part| judge_part(url, part)).collect();
    if !report.ready && findings.iter().all(|finding| finding.level != Level::Error) {
        let remedy = "run doctor again: if it stays so, see its log";
        findings.push(Finding::error(READINESS, format!("{url} is {}", report.status), remedy));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(READINESS, format!("{url} is ready")));
    }
    findings
}

fn judge_part(url: &str, Part { name, status, detail }: &Part) -> Finding {
    let why = detail.as_deref().unwrap_or("it was not checked yet");
    let found = format!("{url}: {name} is {status}: {why}");
    if status == "degraded" {
        Finding::warning(READINESS, found, remedy(name))
    } else {
        Finding::error(READINESS, found, remedy(name))
    }
}

/// Returns the remedy for a part of a program that fails.
fn remedy(part: &str) -> &'static str {
    match part.split(' ').next().unwrap_or_default() {
        "queue" => "see what is found of the queue, and check the program's --queue-url",
        "index" => "see what is found of the index, and check the program's --index-url",
        "ledger" => "see what is found of the ledger, and check the program's --ledger-url",
        "transport" => {
            "see what is found of the MQTT broker, and check the program's --mqtt-url and --transport-mqtt"
        }
        "lane" => "see what is found of the queue; if that is in order, see the program's log",
        "disk" => "make room on the disk of the program's --data-dir",
        _ => "see the program's log",
    }
}

fn judge_version(url: &str, metrics: &str, own: Build<'_>) -> Finding {
    let upgrade = format!("finish the upgrade to {}, the version of this pushctl", own.version);
    let line = metrics.lines().find_map(|line| line.strip_prefix(BUILD));
    let read = |line| Some((label(line, "program")?, build(line)?));
    let Some((program, build)) = line.and_then(read) else {
        let detail = format!("{url} does not say which version it is");
        return Finding::warning(VERSION, detail, upgrade);
    };
    let Build { version, revision } = build;
    if build == own {
        Finding::ok(VERSION, format!("{url}: {program} {version}, as this pushctl"))
    } else if version == own.version {
        let detail = format!("{url}: {program} {version} was built from {revision}");
        let remedy = format!("replace it, or this pushctl, which was built from {}", own.revision);
        Finding::warning(VERSION, detail, remedy)
    } else {
        Finding::warning(VERSION, format!("{url}: {program} {version}"), upgrade)
    }
}

fn build(line: &str) -> Option<Build<'_>> {
    Some(Build { version: label(line, "version")?, revision: label(line, "revision")? })
}

/// Returns the value of a label in `name="value",name="value"}`. None that is looked for has quotes in it.
fn label<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = line.split_once(&format!("{name}=\""))?;
    value.split_once('"').map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const URL: &str = "http://host:9081";

    fn readiness(status: &str, parts: serde_json::Value) -> Vec<Finding> {
        let report = json!({"ready": status == "ready", "status": status, "parts": parts});
        judge_readiness(URL, &serde_json::from_value(report).unwrap())
    }

    #[test]
    fn each_part_that_does_not_work_is_an_error_also_if_the_program_is_ready_without_it() {
        let ok = json!({"name": "queue", "status": "ok", "required": true});
        let index = json!({"name": "index", "status": "failed", "detail": "READONLY"});
        let lane = json!({"name": "lane jobs", "status": "awaited"});
        let some = json!({"name": "ledger", "status": "degraded", "detail": "one of three"});
        assert_eq!(readiness("ready", json!([ok]))[0].level, Level::Ok);
        let found = readiness("ready", json!([ok, index]));
        assert_eq!((found.len(), found[0].level), (1, Level::Error));
        assert_eq!(found[0].detail, format!("{URL}: index is failed: READONLY"));
        assert!(found[0].remedy().unwrap().contains("--index-url"), "{found:?}");
        let found = readiness("starting", json!([lane, some]));
        let levels: Vec<_> = found.iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [Level::Error, Level::Warning]);
    }

    #[test]
    fn a_program_that_is_not_ready_though_its_parts_work_is_an_error() {
        let found = readiness("draining", json!([{"name": "queue", "status": "ok"}]));
        assert_eq!((found.len(), found[0].level), (1, Level::Error));
        assert_eq!(found[0].detail, format!("{URL} is draining"));
    }

    #[test]
    fn a_program_of_another_version_or_commit_is_a_warning() {
        let of = |version: &str, revision: &str| {
            let labels = format!(r#"version="{version}",revision="{revision}",rustc="1.90 (x)""#);
            let metrics = format!("# HELP x\n{BUILD}program=\"ingest\",{labels}}} 1\n# EOF\n");
            judge_version(URL, &metrics, Build { version: "0.2.0", revision: "abc" })
        };
        let same = of("0.2.0", "abc");
        assert_eq!(same.detail, format!("{URL}: ingest 0.2.0, as this pushctl"));
        assert_eq!(same.level, Level::Ok);
        let older = of("0.1.0", "abc");
        assert_eq!(older.level, Level::Warning);
        assert!(older.detail.ends_with("ingest 0.1.0"), "{older:?}");
        assert!(older.remedy().unwrap().contains("the upgrade to 0.2.0"), "{older:?}");
        let other = of("0.2.0", "def");
        assert_eq!(other.level, Level::Warning);
        assert!(other.detail.ends_with("was built from def"), "{other:?}");
        let own = Build { version: "0.2.0", revision: "abc" };
        assert_eq!(judge_version(URL, "push_other 1\n", own).level, Level::Warning);
    }

    #[test]
    fn this_program_reads_the_version_that_programs_of_its_build_publish() {
        let mut registry = prometheus_client::registry::Registry::default();
        push_boot::metrics::process::register(&mut registry, "ingest");
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let found = judge_version(URL, &text, OWN);
        assert_eq!(found.level, Level::Ok, "{found:?}");
    }
}
