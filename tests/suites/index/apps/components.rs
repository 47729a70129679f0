//! Running programs.

use std::time::Duration;

use futures::future::join_all;
use push_index::Index;
use push_model::{
    components::{Component, ComponentState, MAX_COMPONENTS},
    time::UnixMillis,
};
use push_tests::eventually;

/// Longer than a test takes.
const LONG: Duration = Duration::from_mins(10);
const SHORT: Duration = Duration::from_millis(300);
const DEADLINE: Duration = Duration::from_secs(10);

/// The record of a program of this kind.
pub(crate) fn component(kind: &str, id: usize) -> Component {
    Component {
        id: format!("{id:016x}"),
        kind: kind.to_owned(),
        version: "0.1.0".to_owned(),
        revision: "unknown".to_owned(),
        host: "é host".to_owned(),
        listens: [("ops".to_owned(), "127.0.0.1:9081".to_owned())].into(),
        started_at: UnixMillis(1),
        reported_at: UnixMillis(2),
        state: ComponentState::Ready,
        ingest: None,
        worker: None,
    }
}

pub(crate) async fn a_program_is_listed_with_its_last_record_until_that_ends_or_is_removed(
    index: &dyn Index,
) {
    assert_eq!(index.components().await.unwrap(), []);
    let (ingest, mut worker) = (component("ingest", 1), component("worker", 2));
    assert!(index.report_component(&worker, LONG).await.unwrap());
    worker.state = ComponentState::NotReady("queue: refused".to_owned());
    for program in [&worker, &ingest] {
        assert!(index.report_component(program, LONG).await.unwrap());
    }
    assert_eq!(index.components().await.unwrap(), [ingest.clone(), worker.clone()]);

    index.report_component(&ingest, SHORT).await.unwrap();
    eventually("the record ends", DEADLINE, async || match &*index.components().await.unwrap() {
        [left] if *left == worker => Ok(()),
        others => Err(format!("{others:?}")),
    })
    .await;
    index.remove_component(&worker.id).await.unwrap();
    index.remove_component("none").await.unwrap();
    assert_eq!(index.components().await.unwrap(), []);
}

pub(crate) async fn no_more_than_the_most_programs_are_listed_and_one_that_ended_makes_room(
    index: &dyn Index,
) {
    let others: Vec<Component> = (1..MAX_COMPONENTS).map(|id| component("worker", id)).collect();
    for some in others.chunks(100) {
        let reports = some.iter().map(|one| index.report_component(one, LONG));
        for written in join_all(reports).await {
            assert!(written.unwrap());
        }
    }
    let (last, one_more) = (component("worker", MAX_COMPONENTS), component("worker", 9_999));
    assert!(index.report_component(&last, SHORT).await.unwrap());
    eventually("there is room", DEADLINE, async || {
        match index.report_component(&one_more, LONG).await.unwrap() {
            true => Ok(()),
            false => Err("as many others run".to_owned()),
        }
    })
    .await;
    assert!(!index.report_component(&last, LONG).await.unwrap());
    assert!(index.report_component(&one_more, LONG).await.unwrap(), "it is one of them");
    assert_eq!(index.components().await.unwrap().len(), MAX_COMPONENTS);
}

pub(crate) async fn a_record_that_is_too_large_is_not_written(index: &dyn Index) {
    let mut program = component("worker", 1);
    program.host = "h".repeat(5_000);
    assert!(!index.report_component(&program, LONG).await.unwrap());
    assert_eq!(index.components().await.unwrap(), []);
}
