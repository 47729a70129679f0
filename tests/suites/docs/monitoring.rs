//! The alerts and the dashboard of deploy/monitoring: promtool accepts them, each alert is fired by a
//! test, and every metric that they ask for is described.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use push_tests::process::installed;
use serde_json::Value;

use crate::docs::pages::{page, root};

/// Metrics of RabbitMQ's own plugin, `rabbitmq_prometheus`.
const OF_RABBITMQ: [&str; 4] = [
    "rabbitmq_disk_space_available_bytes",
    "rabbitmq_disk_space_available_limit_bytes",
    "rabbitmq_process_resident_memory_bytes",
    "rabbitmq_resident_memory_limit_bytes",
];

/// Prefixes of the names of metrics.
const FAMILIES: [&str; 4] = ["push_", "process_", "tokio_", "rabbitmq_"];

fn monitoring() -> PathBuf {
    root().join("deploy/monitoring")
}

fn rules() -> String {
    fs::read_to_string(monitoring().join("prometheus/rules.yml")).expect("the rules")
}

fn dashboard() -> Value {
    let file = monitoring().join("grafana/dashboards/push.json");
    serde_json::from_str(&fs::read_to_string(file).expect("the dashboard")).expect("JSON")
}

/// The expressions of every query.
fn expressions(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let queries = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    queries.map(|query| query["expr"].as_str().expect("an expression").to_owned()).collect()
}

/// The metrics that a text names, without the suffixes of a histogram's series.
fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let metrics = words.filter(|word| FAMILIES.iter().any(|family| word.starts_with(family)));
    metrics
        .map(|metric| {
            let mut suffixes = ["_bucket", "_sum", "_count"].into_iter();
            suffixes.find_map(|suffix| metric.strip_suffix(suffix)).unwrap_or(metric)
        })
        .collect()
}

fn promtool(arguments: &[&str]) -> Output {
    let promtool = installed("promtool").expect("promtool: ./tests/run installs Prometheus");
    Command::new(promtool).args(arguments).current_dir(monitoring()).output().expect("promtool")
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat()
}

#[test]
fn every_metric_that_alerts_and_dashboard_ask_for_is_described() {
    let described = page("docs/reference/metrics.md").code_spans();
    let asked = [expressions(&dashboard()).join("\n"), rules()].join("\n");
    let asked = metrics(&asked);
    let is_known = |metric: &str| {
        OF_RABBITMQ.contains(&metric) || described.iter().any(|known| known == metric)
    };
    let unknown: Vec<&&str> = asked.iter().filter(|metric| !is_known(metric)).collect();
    assert!(asked.len() > 40, "only {asked:?}");
    assert!(unknown.is_empty(), "docs/reference/metrics.md does not describe {unknown:?}");
}

#[test]
fn every_alert_names_the_section_of_the_runbook_that_names_it() {
    const RUNBOOK: &str = "docs/how-to/runbook.md";
    let (rules, runbook) = (rules(), page(RUNBOOK));
    let anchors = runbook.anchors();
    let named = runbook.code_spans();
    let mut wrong = Vec::new();
    for rule in rules.split("- alert: ").skip(1) {
        let (alert, rest) = rule.split_once('\n').expect("a rule");
        let link = rest.lines().find_map(|line| line.trim().strip_prefix("runbook: "));
        let section = link.and_then(|link| link.strip_prefix(RUNBOOK)?.strip_prefix('#'));
        if !section.is_some_and(|section| anchors.iter().any(|anchor| anchor == section)) {
            wrong.push(format!("{alert}: {link:?} is no section"));
        }
        if !named.iter().any(|name| name == alert) {
            wrong.push(format!("{RUNBOOK} does not name {alert}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn promtool_accepts_the_alerts_and_a_test_fires_each_of_them() {
    for check in [
        &["check", "rules", "prometheus/rules.yml"][..],
        &["check", "config", "--syntax-only", "prometheus/prometheus.yml"],
        &["test", "rules", "rules-test.yml"],
    ] {
        let output = promtool(check);
        assert!(output.status.success(), "{check:?}: {}", text(&output));
    }
    let tests = fs::read_to_string(monitoring().join("rules-test.yml")).expect("the tests");
    let rules = rules();
    let alerts: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 12, "only {alerts:?}");
    for alert in alerts {
        let begin = format!("- alertname: {alert}\n");
        let cases: Vec<&str> = tests.split(&begin).skip(1).collect();
        let quiet = cases
            .iter()
            .filter(|case| case.lines().nth(1).is_some_and(|line| line.trim() == "exp_alerts: []"));
        assert_eq!((cases.len(), quiet.count()), (2, 1), "{alert} must fire once, and not once");
    }
}

#[test]
fn the_dashboard_works_with_any_data_source_and_its_panels_do_not_overlap() {
    let dashboard = dashboard();
    let variable = &dashboard["templating"]["list"][0];
    assert_eq!(variable["name"], "datasource");
    assert_eq!(variable["type"], "datasource");
    assert!(expressions(&dashboard).len() > 40);
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut ids = BTreeSet::new();
    let mut cells = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title} has an id twice");
        let position = |name: &str| panel["gridPos"][name].as_u64().expect("a position");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(position);
        assert!(x + w <= 24, "{title} is too wide");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "{title} covers another panel");
        }
        if panel["type"] != "row" {
            assert!(!panel["description"].as_str().unwrap_or_default().is_empty(), "{title}");
            let own = std::iter::once(panel);
            for part in own.chain(panel["targets"].as_array().expect("queries")) {
                assert_eq!(part["datasource"]["uid"], "${datasource}", "{title}");
            }
        }
    }
}
