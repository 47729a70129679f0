//! What the sender of a push is told of topics that no device has: probably they are misspelt.

use std::collections::{BTreeSet, HashSet};

use push_model::{
    app::AppKey,
    filter::{Column, Filter, Test},
    ids::Topic,
    message::Audience,
};

use crate::{
    index_client::{IndexClient, Subject},
    message::Push,
};

/// The topics that the filter of a push names.
fn topics<'p>(push: &'p Push<'_>) -> impl Iterator<Item = &'p str> {
    let filter = match &push.wanted.audience {
        Audience::Targeting(targeting) => targeting.filter.as_deref(),
        Audience::All | Audience::Clients(_) | Audience::Users(_) => None,
    };
    let leaves = filter.map(Filter::leaves).unwrap_or_default().iter();
    let values =
        leaves.filter(|leaf| leaf.column == Column::Topic).filter_map(|leaf| match &leaf.test {
            Test::In(values) => Some(values),
            Test::Range { .. } => None,
        });
    values.flatten().map(|topic| &**topic)
}

/// Returns true if a push names topics.
pub(super) fn names_topics(push: &Push<'_>) -> bool {
    topics(push).next().is_some()
}

/// Notes the topics that no device has. If the index does not answer, nothing is noted.
pub(super) async fn note(index: &IndexClient, app: &AppKey, pushes: &mut [&mut Push<'_>]) {
    let named: BTreeSet<&str> = pushes.iter().flat_map(|push| topics(push)).collect();
    let named: Vec<Topic> = named.into_iter().filter_map(|topic| topic.parse().ok()).collect();
    let unknown = index.index.unknown_topics(app, &named);
    let Ok(unknown) = index.ask(Subject::app(&app.id), unknown).await else { return };
    if unknown.is_empty() {
        return;
    }
    let unknown: HashSet<&str> = unknown.iter().map(Topic::as_str).collect();
    for push in pushes {
        let of_push: BTreeSet<&str> =
            topics(push).filter(|topic| unknown.contains(topic)).collect();
        let texts: Vec<_> =
            of_push.iter().map(|topic| format!("no device has the topic {topic}")).collect();
        texts.iter().for_each(|text| push.notes.note(text));
    }
}
