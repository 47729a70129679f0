//! The page of metrics and the programs: every metric of the page exists, with its kind and labels, and
//! no other is published.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use push_tests::{
    free_port,
    servers::Redis,
    service::Program,
    stack::{APP, Servers, Stack},
};
use serde_json::json;

use super::{
    metrics::{OFTEN, until},
    promtool,
};

/// A metric as the page or a program describes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Described {
    name: String,
    kind: String,
    labels: BTreeSet<String>,
}

/// The metrics of the page, each with the letters of the programs that have it.
fn page() -> Vec<(Described, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/metrics.md");
    let text = fs::read_to_string(path).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, _, programs] = cells[..] else { return None };
        let name = name.strip_prefix('`')?.trim_end_matches('`').to_owned();
        let labels = labels.split(", ").filter(|label| !label.is_empty());
        let labels = labels.map(|label| label.trim_matches('`').to_owned()).collect();
        Some((Described { name, kind: kind.to_owned(), labels }, programs.to_owned()))
    };
    text.lines().filter_map(row).collect()
}

fn published(text: &str) -> Vec<Described> {
    let mut kinds = BTreeMap::new();
    let mut all: BTreeMap<String, Described> = BTreeMap::new();
    for line in text.lines() {
        if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, kind) = described.split_once(' ').unwrap();
            kinds.insert(name.to_owned(), kind.to_owned());
        }
        if line.starts_with('#') {
            continue;
        }
        let (series, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels.trim_end_matches('}').split("\",").filter(|label| !label.is_empty());
        let labels = labels.map(|label| label.split_once('=').unwrap().0.to_owned());
        let base = ["_bucket", "_sum", "_count", "_total", "_info"]
            .into_iter()
            .filter_map(|end| name.strip_suffix(end))
            .chain([name])
            .find(|base| kinds.contains_key(*base))
            .unwrap_or_else(|| panic!("{name} has no type"));
        let kind = kinds[base].clone();
        // The page names a metric as it is queried.
        let name = match &*kind {
            "counter" => format!("{base}_total"),
            "info" => format!("{base}_info"),
            _ => base.to_owned(),
        };
        let labels: BTreeSet<String> = labels.filter(|label| label != "le").collect();
        let one = Described { name: name.clone(), kind, labels: BTreeSet::new() };
        all.entry(name).or_insert(one).labels.extend(labels);
    }
    all.into_values().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_has_every_metric_that_a_program_publishes_and_no_other() {
    let redis = Redis::start().await.unwrap();
    redis.limit_memory(1 << 30).await.unwrap();
    let mut stack = Stack::start(Servers { redis: redis.url(), ..Servers::shared() }).await;
    stack.add_ingest_with(&OFTEN).await;
    stack.import_crowd(10, 0).await;
    let worker = stack.worker(&OFTEN).await;
    let ingest = &stack.ingests()[1];
    let push = json!({"type": 2, "time_to_live": 600, "condition": {"type": 0}});
    let path = format!("/v1/message/push/{APP}");
    let (_, answer) = stack.call_at(1, "POST", &path, &[], &push).await;
    stack.closed(answer["result"]["message_id"].as_str().unwrap()).await;
    let folder = tempfile::tempdir().unwrap();
    let (http, mqtt) = (free_port().unwrap(), free_port().unwrap());
    let data_dir = folder.path().to_str().unwrap();
    let (http, mqtt) = (http.address(), mqtt.address());
    let flags = ["standalone", "--listen", &http, "--mqtt-listen", &mqtt, "--data-dir", data_dir];
    let standalone = Program::start_ready("pushctl", &[&flags[..], &OFTEN].concat()).await;
    for (program, last) in [
        (ingest, "push_queue_consumers{queue=\"jobs\"}"),
        (&worker, "push_broadcast_devices_per_second"),
        (&standalone, "push_broadcast_devices_per_second"),
    ] {
        until(program, last, |value| value > 0.0).await;
    }
    let scraped = async |programs: &[&Program]| {
        let mut all = BTreeMap::new();
        for program in programs {
            let text = program.metrics().await;
            promtool::check(&text).unwrap();
            all.extend(published(&text).into_iter().map(|one| (one.name.clone(), one)));
        }
        all
    };
    let ingest = scraped(&[ingest]).await;
    let worker = scraped(&[&worker]).await;
    let standalone = scraped(&[&standalone]).await;
    let page = page();
    assert!(page.len() > 60, "only {} rows of the page were understood", page.len());
    let mut wrong = Vec::new();
    for (program, letters, has) in
        [("ingest", "i", &ingest), ("worker", "w", &worker), ("standalone", "iwb", &standalone)]
    {
        let is_of = |of: &str| letters.chars().any(|letter| of.contains(letter));
        let known: BTreeMap<&str, &Described> =
            page.iter().filter(|(_, of)| is_of(of)).map(|(one, _)| (&*one.name, one)).collect();
        for one in has.values() {
            match known.get(&*one.name) {
                None => wrong.push(format!("{program}: {} is not on the page", one.name)),
                Some(on_page) if *on_page != one => {
                    wrong.push(format!("{program}: {one:?}, on the page {on_page:?}"));
                }
                Some(_) => {}
            }
        }
    }
    for (one, of) in &page {
        // What only one of the engines has, or only what sent something, is published by one of them.
        let programs = [("i", &ingest), ("w", &worker)];
        let published = programs
            .into_iter()
            .any(|(letter, has)| of.contains(letter) && has.contains_key(&one.name));
        if !published && !standalone.contains_key(&one.name) {
            wrong.push(format!("{} is on the page, and not published", one.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
