//! Filters over a million devices with attributes of their app's own, and with topics.

use std::sync::Arc;

use anyhow::Context as _;
use push_model::{
    app::App,
    attributes::Attribute,
    filter::{Column, Filter, Leaf, Limit, Node, Test},
    targeting::Targeting,
};
use push_tests::stack::APP;
use tempfile::NamedTempFile;

use super::targeting::{Columns, TargetedApp};
use crate::{
    measure::stats::{Rounds, median},
    report::{Figure, Row, Target},
    setup::{
        Environment, LoadedApp,
        environment::import_file,
        population::{self, PROFILES, TOPICS},
    },
};

/// The attributes of the app, and their types.
const ATTRIBUTES: [(&str, &str); 3] = [("plan", "string"), ("level", "number"), ("beta", "string")];

pub(super) async fn run(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let loaded = load(env).await?;
    let app = loaded.index().await?.app(&APP.parse()?).await?.context("there is no app")?;
    let (filter, columns) = five_leaves(&app)?;
    let five = TargetedApp::open(&loaded, columns, filter, population::count_filtered()).await?;
    let mut topics = Vec::new();
    for (topic, members) in TOPICS {
        let leaf = Leaf::new(Column::Topic, None, Test::In(vec![topic.into()]));
        let columns = Columns { names: Vec::new(), whole: 0, partial: 0 };
        let targeting = filtered(vec![leaf], Node::Leaf(0))?;
        topics.push(TargetedApp::open(&loaded, columns, targeting, members as u64).await?);
    }
    let mut of_five = Rounds::default();
    let mut of_topics = vec![Vec::new(); topics.len()];
    // The first round reads the dictionaries and warms the connections.
    for round in 0..=env.sizes.rounds * 3 {
        let (figure, ceiling) = (five.count(1).await?, five.read(1).await?);
        let mut counts = Vec::new();
        for topic in &topics {
            counts.push(topic.count(1).await?);
        }
        if round > 0 {
            of_five.add(figure, ceiling);
            of_topics.iter_mut().zip(counts).for_each(|(all, count)| all.push(count));
        }
    }
    let mut rows = vec![Row {
        what: "targeting, a filter of five tests".to_owned(),
        target: Target::AtMost(6.0),
        how: format!(
            "{PROFILES} devices; a plan or a level, not `beta`, and a country or an app version, counted by \
             the index engine. Ceiling, in turn: GETRANGE of the same five columns, thrown away"
        ),
        ..of_five.row("ms/M", "ms/M")
    }];
    for ((_, members), counts) in TOPICS.into_iter().zip(of_topics) {
        rows.push(Row {
            what: format!("targeting, a topic of {members}"),
            how: format!("counted by the index engine among {PROFILES} devices"),
            ..Row::alone(Figure::new(median(counts), "ms/M"))
        });
    }
    Ok(rows)
}

/// Loads an app whose devices have profiles.
async fn load(env: &Environment) -> anyhow::Result<LoadedApp> {
    let loaded = env.load(0, "discard").await?;
    for (name, value_type) in ATTRIBUTES {
        loaded.stack.pushctl(&["attribute", "add", APP, name, "--type", value_type]).await;
    }
    let file = NamedTempFile::new()?;
    let path = file.path().to_owned();
    tokio::task::spawn_blocking(move || population::write_profiles(&path)).await??;
    let import = import_file(&loaded.stack, APP, PROFILES, file.path()).await?;
    Ok(LoadedApp { size: PROFILES, import, ..loaded })
}

/// The filter that [`population::count_filtered`] counts, and the columns that it needs.
fn five_leaves(app: &App) -> anyhow::Result<(Targeting, Columns)> {
    let custom = |name: &str| {
        let declared = app.attributes.find(name).context("the attribute is not declared")?;
        anyhow::Ok((Column::Custom(declared.id), declared.value_type.order(), declared.id.0))
    };
    let values = |values: &[&str]| Test::In(values.iter().map(|value| (*value).into()).collect());
    let from = |value: &str| Test::Range {
        from: Some(Limit { value: value.into(), inclusive: true }),
        to: None,
    };
    let (plan, level, beta) = (custom("plan")?, custom("level")?, custom("beta")?);
    let (country, version) = (Attribute::Country, Attribute::AppVersion);
    let leaves = vec![
        Leaf::new(plan.0, plan.1, values(&["pro", "team"])),
        Leaf::new(level.0, level.1, from("150")),
        Leaf::new(beta.0, beta.1, values(&["yes"])),
        Leaf::new(Column::BuiltIn(country), Leaf::order_of(country), values(&["CN", "SG"])),
        Leaf::new(Column::BuiltIn(version), Leaf::order_of(version), from("5.20")),
    ];
    let either = |a, b| Node::Any(vec![Node::Leaf(a), Node::Leaf(b)]);
    let root = Node::All(vec![either(0, 1), Node::Not(Box::new(Node::Leaf(2))), either(3, 4)]);
    let built_in = [country, version].map(|attribute| attribute.index().to_string());
    let own = [plan.2, level.2, beta.2].map(|id| format!("c{id}"));
    let (whole, partial) = (built_in.len(), own.len());
    let columns = Columns { names: built_in.into_iter().chain(own).collect(), whole, partial };
    Ok((filtered(leaves, root)?, columns))
}

fn filtered(leaves: Vec<Leaf>, root: Node) -> anyhow::Result<Targeting> {
    let mut targeting = Targeting::all_devices();
    targeting.filter = Some(Arc::new(Filter::new(leaves, root)?));
    Ok(targeting)
}
