//! The running programs by their records in the index: which run, if they are ready, and if a kind is
//! missing that pushes need.

use std::{collections::BTreeMap, time::Duration};

use push_boot::build_info;
use push_index::Index;
use push_store::Finding;

use crate::{
    components::{ComponentView, list},
    doctor::{human, servers::engine::Engine},
};

const SUBJECT: &str = "running programs";

/// The most programs that a finding names, and the most findings about single programs.
const NAMED: usize = 10;

/// Judges the programs that the index lists.
pub(in crate::doctor) async fn findings(index: &dyn Index, engine: &Engine) -> Vec<Finding> {
    match list(index).await {
        Ok(components) => judge(&components, build_info::NUMBER),
        Err(error) => vec![engine.store_failed(SUBJECT, &error)],
    }
}

fn judge(components: &[ComponentView], own_version: &str) -> Vec<Finding> {
    let (ready, others): (Vec<_>, Vec<_>) =
        components.iter().partition(|component| component.reason.is_none());
    let mut of_kinds = BTreeMap::<&str, Vec<&ComponentView>>::new();
    ready.into_iter().for_each(|one| of_kinds.entry(&one.kind).or_default().push(one));
    let mut findings: Vec<Finding> = of_kinds
        .into_iter()
        .map(|(kind, all)| {
            let names = named(&all, |one| format!("{} (up {})", one.host, up(one)));
            Finding::ok(SUBJECT, format!("{} {kind} ready: {names}", all.len()))
        })
        .collect();
    findings.extend(others.iter().take(NAMED).map(|one| not_ready(one)));
    if others.len() > NAMED {
        let detail = format!("{} more programs are not ready", others.len() - NAMED);
        findings.push(Finding::warning(SUBJECT, detail, "fix what is found of the first ones"));
    }
    let strange: Vec<_> = components.iter().filter(|one| one.version != own_version).collect();
    if !strange.is_empty() {
        let names =
            named(&strange, |one| format!("{} on {} is {}", one.kind, one.host, one.version));
        let remedy = format!("finish the upgrade to {own_version}, the version of this pushctl");
        findings.push(Finding::warning(SUBJECT, names, remedy));
    }
    findings.extend(missing(components));
    findings
}

fn not_ready(component: &ComponentView) -> Finding {
    let ComponentView { kind, host, reason, state, .. } = component;
    let state = state.replace('_', " ");
    let reason = reason.as_deref().unwrap_or_default();
    let remedy = "see what is found of the servers that it names, and its log";
    Finding::warning(SUBJECT, format!("{kind} on {host} is {state}: {reason}"), remedy)
}

fn missing(components: &[ComponentView]) -> Option<Finding> {
    let accepts = components.iter().any(ComponentView::is_ingest);
    let sends = components.iter().any(ComponentView::is_worker);
    let (detail, remedy) = match (accepts, sends) {
        (true, true) => return None,
        (false, false) => (
            "none runs on this index: pushes are neither accepted nor sent",
            "start `ingest` and `fanout-worker`, or `pushctl standalone`, with this index and namespace",
        ),
        (true, false) => (
            "no worker runs: pushes are accepted, and wait in the queue",
            "start `fanout-worker` with this index and namespace",
        ),
        (false, true) => {
            ("no ingest runs: no push is accepted", "start `ingest` with this index and namespace")
        }
    };
    Some(Finding::warning(SUBJECT, detail, remedy))
}

fn up(component: &ComponentView) -> String {
    human::duration(component.uptime().max(Duration::from_secs(1)))
}

fn named(all: &[&ComponentView], name: impl Fn(&ComponentView) -> String) -> String {
    let mut names: Vec<String> = all.iter().take(NAMED).map(|one| name(one)).collect();
    if all.len() > NAMED {
        names.push(format!("and {} more", all.len() - NAMED));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use push_model::{
        components::{Component, ComponentState},
        time::UnixMillis,
    };
    use push_store::Level;

    use super::*;

    fn program(kind: &str, state: ComponentState) -> ComponentView {
        Component {
            id: "1".to_owned(),
            kind: kind.to_owned(),
            version: "0.2.0".to_owned(),
            revision: "unknown".to_owned(),
            host: "a".to_owned(),
            listens: BTreeMap::new(),
            started_at: UnixMillis(1_000),
            reported_at: UnixMillis(7_201_000),
            state,
            ingest: None,
            worker: None,
        }
        .into()
    }

    fn judged(components: &[ComponentView]) -> Vec<(Level, String)> {
        let found = judge(components, "0.2.0").into_iter();
        found.map(|finding| (finding.level, finding.detail)).collect()
    }

    #[test]
    fn the_programs_that_run_are_named_with_their_uptime() {
        let [ingest, worker] =
            ["ingest", "fanout-worker"].map(|kind| program(kind, ComponentState::Ready));
        assert_eq!(
            judged(&[ingest, worker.clone(), worker]),
            [
                (Level::Ok, "2 fanout-worker ready: a (up 2 hours), a (up 2 hours)".to_owned()),
                (Level::Ok, "1 ingest ready: a (up 2 hours)".to_owned()),
            ]
        );
        let all = judged(&[program("standalone", ComponentState::Ready)]);
        assert!(all.iter().all(|(level, _)| *level == Level::Ok), "it does both: {all:?}");
    }

    #[test]
    fn a_kind_that_pushes_need_and_that_does_not_run_is_a_warning() {
        for (kinds, told) in [
            (&[][..], "none runs on this index"),
            (&["ingest"][..], "no worker runs: "),
            (&["fanout-worker", "broker"][..], "no ingest runs: "),
        ] {
            let programs: Vec<_> =
                kinds.iter().map(|kind| program(kind, ComponentState::Ready)).collect();
            let all = judged(&programs);
            let (level, detail) = all.last().unwrap();
            assert!(*level == Level::Warning && detail.starts_with(told), "{all:?}");
        }
    }

    #[test]
    fn a_program_that_is_not_ready_or_of_another_version_is_a_warning() {
        let all = judged(&[
            program("ingest", ComponentState::Ready),
            program("fanout-worker", ComponentState::NotReady("queue: refused".to_owned())),
        ]);
        let told = "fanout-worker on a is not ready: queue: refused";
        assert_eq!(all[1..], [(Level::Warning, told.to_owned())]);
        let all = judge(&[program("standalone", ComponentState::Ready)], "0.3.0");
        assert_eq!(all[1].detail, "standalone on a is 0.2.0");
        assert!(all[1].remedy().unwrap().contains("0.3.0"), "{all:?}");
    }

    #[test]
    fn many_programs_are_few_lines() {
        let broken = program("fanout-worker", ComponentState::NotReady("queue".to_owned()));
        let ready = program("standalone", ComponentState::Ready);
        let all = [vec![broken; 500], vec![ready; 500]].concat();
        let all = judged(&all);
        assert_eq!(all.len(), 12, "{all:?}");
        assert!(all[0].1.ends_with("and 490 more") && all[11].1.starts_with("490 more"), "{all:?}");
    }
}
