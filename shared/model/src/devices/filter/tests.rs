use proptest::prelude::*;

use super::*;

fn leaf(column: Column, order: Option<Order>, test: Test) -> Leaf {
    Leaf::new(column, order, test)
}

fn is_in(column: Column, values: &[&str]) -> Leaf {
    leaf(column, None, Test::In(values.iter().map(|value| (*value).into()).collect()))
}

fn range(
    column: Column,
    order: Order,
    from: Option<(&str, bool)>,
    to: Option<(&str, bool)>,
) -> Leaf {
    let limit = |end: Option<(&str, bool)>| {
        end.map(|(value, inclusive)| Limit { value: value.into(), inclusive })
    };
    leaf(column, Some(order), Test::Range { from: limit(from), to: limit(to) })
}

const PLAN: Column = Column::Custom(CustomId(1));
const LEVEL: Column = Column::Custom(CustomId(2));

fn device(plan: &str, level: &str, topics: &[&str]) -> Profile {
    Profile {
        custom: vec![(CustomId(1), plan.into()), (CustomId(2), level.into())],
        topics: topics.iter().map(|topic| topic.parse().unwrap()).collect(),
        user_id: None,
    }
}

#[test]
fn a_filter_holds_as_its_parts_say() {
    let leaves = vec![
        is_in(PLAN, &["team", "pro"]),
        range(LEVEL, Order::Number, Some(("10", true)), Some(("20", false))),
        is_in(Column::Topic, &["f1"]),
    ];
    let root = Node::All(vec![
        Node::Any(vec![Node::Leaf(0), Node::Leaf(1)]),
        Node::Not(Box::new(Node::Leaf(2))),
    ]);
    let filter = Filter::new(leaves, root).unwrap();
    let holds = |profile: &Profile| filter.evaluate(&Attributes::default(), profile);
    assert_eq!(holds(&device("pro", "1", &[])), Truth::True);
    assert_eq!(holds(&device("free", "9", &[])), Truth::False);
    assert_eq!(holds(&device("free", "10", &[])), Truth::True);
    assert_eq!(holds(&device("free", "20", &[])), Truth::False);
    assert_eq!(holds(&device("pro", "1", &["f1", "f2"])), Truth::False);
    assert_eq!(holds(&Profile::default()), Truth::False, "a missing value holds nowhere");
    let json = serde_json::to_string(&filter).unwrap();
    assert_eq!(serde_json::from_str::<Filter>(&json).unwrap(), filter);
}

#[test]
fn not_of_a_missing_value_holds_and_not_of_a_lost_one_does_not() {
    let root = Node::Not(Box::new(Node::Leaf(0)));
    let filter = Filter::new(vec![is_in(PLAN, &["pro"])], root).unwrap();
    assert_eq!(filter.evaluate(&Attributes::default(), &Profile::default()), Truth::True);
    assert_eq!(filter.evaluate_with(|_| Truth::Unknown), Truth::Unknown);
    let both = Node::Any(vec![Node::Leaf(0), Node::Not(Box::new(Node::Leaf(0)))]);
    let both = Filter::new(vec![is_in(PLAN, &["pro"])], both).unwrap();
    assert_eq!(both.evaluate_with(|_| Truth::Unknown), Truth::Unknown);
}

#[test]
fn versions_are_compared_as_versions_and_languages_by_their_ranges() {
    let app_version = Column::BuiltIn(Attribute::AppVersion);
    let at_least = range(app_version, Order::Version, Some(("2.9", true)), None);
    assert!(at_least.wants("2.10") && at_least.wants("2.9.0") && !at_least.wants("2.9-rc1"));
    assert!(!at_least.wants("unknown"), "a text that is no version lies in no range");
    let values = Test::In(["2.0", "1.0", "beta"].map(Into::into).to_vec());
    let listed = leaf(app_version, Some(Order::Version), values);
    assert!(listed.wants("2.0.0") && listed.wants("beta") && !listed.wants("2.1"));
    let chinese = is_in(Column::BuiltIn(Attribute::Language), &["zh-hans", "zh", "de"]);
    assert!(chinese.wants("zh-hant-tw") && chinese.wants("de-at") && !chinese.wants("zha"));
}

#[test]
fn a_filter_has_bounds() {
    let leaf = || is_in(PLAN, &["pro"]);
    let nested =
        |levels: usize| (0..levels).fold(Node::Leaf(0), |node, _| Node::Not(Box::new(node)));
    assert!(Filter::new(vec![leaf()], nested(MAX_LEVELS)).is_ok());
    assert_eq!(Filter::new(vec![leaf()], nested(MAX_LEVELS + 1)), Err(BadFilter::Levels));
    let wide = |leaves: usize| Node::Any((0..leaves).map(Node::Leaf).collect());
    assert!(Filter::new(vec![leaf(); MAX_LEAVES], wide(MAX_LEAVES)).is_ok());
    let many = Filter::new(vec![leaf(); MAX_LEAVES + 1], wide(MAX_LEAVES + 1));
    assert_eq!(many, Err(BadFilter::Leaves));
    let repeated = Node::All(vec![Node::Leaf(0); MAX_LEAVES + 1]);
    assert_eq!(Filter::new(vec![leaf()], repeated), Err(BadFilter::Leaves));
    assert_eq!(Filter::new(vec![leaf()], Node::All(Vec::new())), Err(BadFilter::EmptyList));
    assert_eq!(Filter::new(vec![is_in(PLAN, &[])], Node::Leaf(0)), Err(BadFilter::EmptyList));
    assert_eq!(Filter::new(vec![leaf()], Node::Leaf(1)), Err(BadFilter::NoLeaf));
}

#[test]
fn samples_of_one_seed_share_the_devices_out() {
    let sample = |from, to, seed: &str| Sample { from, to, seed: seed.into() };
    let (first, rest) = (sample(0, 1000, "spring"), sample(1000, 10_000, "spring"));
    let clients: Vec<_> = (0..10_000).map(|n| format!("c{n}").parse().unwrap()).collect();
    assert!(clients.iter().all(|client| first.has(client) != rest.has(client)));
    let share = clients.iter().filter(|client| first.has(client)).count();
    assert!((850..1150).contains(&share), "{share}");
    assert_eq!(first.share_of(10_000), 1000);
    let other = sample(0, 1000, "summer");
    assert!(clients.iter().any(|client| first.has(client) != other.has(client)));
}

proptest! {
    #[test]
    fn a_leaf_that_was_prepared_wants_what_the_leaf_does(
        listed in proptest::collection::vec("v?[0-3]{1,2}(\\.[0-3b]){0,2}(-[0-2])?|[a-c]|zh(-[a-b])?", 1..9),
        has in proptest::collection::vec("v?[0-3]{1,2}(\\.[0-3b]){0,2}(-[0-2])?|[a-c]|zh(-[a-b])?", 9),
        inclusive in any::<[bool; 2]>(),
        ends in 0..4_usize,
    ) {
        let limit = |place: usize| {
            let value = listed[place.min(listed.len() - 1)].as_str().into();
            (ends >> place & 1 == 1).then_some(Limit { value, inclusive: inclusive[place] })
        };
        let columns = [Column::BuiltIn(Attribute::AppVersion), Column::BuiltIn(Attribute::Language), PLAN];
        for column in columns {
            for order in [None, Some(Order::Number), Some(Order::Version), Some(Order::Time)] {
                let values = listed.iter().map(|value| value.as_str().into()).collect();
                for test in [Test::In(values), Test::Range { from: limit(0), to: limit(1) }] {
                    let leaf = Leaf::new(column, order, test);
                    let prepared = leaf.prepare();
                    for has in &has {
                        let value = RankedValue::new(order, has);
                        prop_assert_eq!(prepared.wants(&value), leaf.wants(has), "{:?} {}", leaf, has);
                    }
                }
            }
        }
    }
}
