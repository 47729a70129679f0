//! The filter of a targeting.

use push_model::{
    attributes::Attribute,
    custom::{CustomId, Order},
    filter::{Column, Filter, Leaf, Limit, MAX_LEVELS, Node, Test},
};

use super::*;

/// Reads a push with a filter.
fn read_filtered(filter: Value) -> Result<Push<'static>, Rejection> {
    read(&with("condition", json!({"type": 1, "targeting": {"filter": filter}})))
}

fn filter(json: Value) -> Filter {
    match read_filtered(json).unwrap().wanted.audience {
        Audience::Targeting(targeting) => (*targeting.filter.unwrap()).clone(),
        other => panic!("a targeting, not {other:?}"),
    }
}

fn leaf(json: Value) -> Leaf {
    filter(json).leaves()[0].clone()
}

/// Returns the id of the attribute that `rules` declares for a type.
fn column(value_type: ValueType) -> Column {
    let declared = rules().attributes.find(&format!("a-{}", value_type.name()));
    Column::Custom(declared.map_or(CustomId(0), |declared| declared.id))
}

#[test]
fn a_filter_combines_tests_of_attributes_and_topics() {
    let read = filter(json!({"all": [
        {"any": [{"attribute": "a-string", "in": ["pro", "team", " pro "]}, {"topic": "f1"}]},
        {"not": {"attribute": "a-number", "gte": 10, "lt": 2e1}},
    ]}));
    let leaves = [
        Leaf::new(column(ValueType::String), None, Test::In(vec!["pro".into(), "team".into()])),
        Leaf::new(Column::Topic, None, Test::In(vec!["f1".into()])),
        Leaf::new(
            column(ValueType::Number),
            Some(Order::Number),
            Test::Range {
                from: Some(Limit { value: "10".into(), inclusive: true }),
                to: Some(Limit { value: "20".into(), inclusive: false }),
            },
        ),
    ];
    assert_eq!(read.leaves(), leaves);
    let any = Node::Any(vec![Node::Leaf(0), Node::Leaf(1)]);
    let root = Node::All(vec![any, Node::Not(Box::new(Node::Leaf(2)))]);
    assert_eq!(read.root(), &root);
}

#[test]
fn values_have_the_form_in_which_devices_have_them() {
    let values = |json: Value| match leaf(json).test {
        Test::In(values) => values.iter().map(ToString::to_string).collect::<Vec<_>>(),
        Test::Range { from, to } => {
            from.iter().chain(&to).map(|limit| limit.value.to_string()).collect()
        }
    };
    for (json, normalised) in [
        (json!({"attribute": "country", "in": ["cn", "UK"]}), ["CN", "GB"].as_slice()),
        (json!({"attribute": "language", "in": ["zh_CN", "zh"]}), &["zh"]),
        (json!({"attribute": "os_version", "in": [34, "033"]}), &["33", "34"]),
        (json!({"attribute": "os_version", "gt": 30}), &["30"]),
        (json!({"attribute": "app_version", "lte": " 2.10 "}), &["2.10"]),
        (json!({"attribute": "a-version", "gte": "v2"}), &["v2"]),
        (json!({"attribute": "a-number", "in": [7.0, 7]}), &["7"]),
        (json!({"attribute": "a-time", "lt": 0}), &["1970-01-01T00:00:00.000Z"]),
        (json!({"attribute": "a-string", "in": [true]}), &["true"]),
    ] {
        assert_eq!(values(json.clone()), normalised, "{json}");
    }
    let order = |json: Value| leaf(json).order;
    assert_eq!(order(json!({"attribute": "os_version", "gt": 30})), Some(Order::Number));
    let built_in = leaf(json!({"attribute": "brand", "in": ["x"]}));
    assert_eq!(built_in.column, Column::BuiltIn(Attribute::Brand));
}

#[test]
fn what_is_wrong_with_a_filter_is_named_with_its_place() {
    let tests = |count: usize| vec![json!({"topic": "f1"}); count];
    let nested =
        |levels: usize| (0..levels).fold(json!({"topic": "f1"}), |inner, _| json!({"not": inner}));
    assert!(read_filtered(json!({"any": tests(64)})).is_ok());
    assert!(read_filtered(nested(MAX_LEVELS)).is_ok());
    let at = "condition.targeting.filter";
    for (json, told) in [
        (json!([]), " must be a JSON object"),
        (json!({}), " must have exactly one of all, any, not, attribute and topic"),
        (json!({"all": tests(1), "topic": "f1"}), " must have exactly one of "),
        (json!({"all": []}), ".all must not be empty"),
        (json!({"any": [{"not": {"any": []}}]}), ".any[0].not.any must not be empty"),
        (json!({"all": [{"tropic": "f1"}]}), ".all[0]"),
        (json!({"any": tests(65)}), " must have at most 64 tests"),
        (
            json!({"all": [{"any": tests(40)}, {"any": tests(25)}]}),
            ".all[1].any[24] must have at most",
        ),
        (nested(MAX_LEVELS + 1), ".not.not.not.not.not.not must be nested at most 6 levels deep"),
        (json!({"topic": "a b"}), ".topic must be 1 to 64 characters"),
        (json!({"topic": "f1", "in": ["f1"]}), ".in needs attribute beside it"),
        (json!({"attribute": "a-string"}), " must have in, or one of gt, gte, lt and lte"),
        (json!({"attribute": "a-string", "in": []}), ".in must not be empty"),
        (json!({"attribute": "a-string", "in": ["x"], "gt": 1}), " must not have both in and gt"),
        (json!({"attribute": "a-number", "gt": 1, "gte": 1}), " must not have both gt and gte"),
        (json!({"attribute": "a-string", "gt": "x"}), ".gt: the values of this attribute have no"),
        (json!({"attribute": "brand", "lt": "x"}), ".lt: the values of this attribute have no"),
        (json!({"attribute": "a-string", "in": ["x", 5]}), ".in[1] must be a string"),
        (json!({"attribute": "a-number", "in": ["7"]}), ".in[0] must be a number, like"),
        (json!({"attribute": "a-version", "gt": "new"}), ".gt must be a version, like"),
        (json!({"attribute": "app_version", "gt": "new"}), ".gt must be a version, like"),
        (json!({"attribute": "a-time", "gt": "soon"}), ".gt must be a time of"),
        (json!({"attribute": "country", "in": ["Chile"]}), ".in[0] must be two letters"),
        (json!({"attribute": "country", "in": [5]}), ".in[0]: invalid type"),
        (
            json!({"not": {"attribute": "a-strin", "in": ["x"]}}),
            ".not.attribute: this app declares no attribute a-strin; the nearest one is a-string",
        ),
        (
            json!({"attribute": "xyz", "in": ["x"]}),
            ".attribute: this app declares no attribute xyz",
        ),
    ] {
        let problem = problem(read_filtered(json.clone()));
        assert!(problem.starts_with(&format!("{at}{told}")), "{json}: {problem}");
    }
}

#[test]
fn a_filter_that_no_other_type_of_condition_uses_is_refused_and_not_ignored() {
    for kind in [0, 2] {
        let condition = json!({
            "type": kind, "client_ids": ["a"], "targeting": {"filter": {"topic": "f1"}}
        });
        let told = problem(read(&with("condition", condition)));
        assert!(told.starts_with("condition.targeting.filter must be used with"), "{told}");
    }
    let twice = r#"{"type":1,"time_to_live":1,"condition":{"type":0,"targeting":{"filter":{},"filter":{}}}}"#;
    let told = problem(read_text(twice));
    assert!(told.starts_with("condition.targeting.filter must be used with"), "{told}");
    let none = json!({"type": 0, "targeting": {"filter": null}});
    assert!(read(&with("condition", none)).is_ok());
}

#[test]
fn however_deep_and_wide_a_filter_is_it_is_not_followed() {
    let around = |filter: &str| {
        format!(
            r#"{{"type":1,"time_to_live":1,"condition":{{"type":1,"targeting":{{"filter":{filter}}}}}}}"#
        )
    };
    for open in [r#"{"not":"#, r#"{"all":["#] {
        let depth = 20_000;
        let close = if open.contains('[') { "]}" } else { "}" };
        let deep = [&open.repeat(depth), r#"{"topic":"a"}"#, &close.repeat(depth)].concat();
        assert!(problem(read_text(&around(&deep))).ends_with("at most 6 levels deep"));
    }
    let wide = format!(r#"{{"any":[{}]}}"#, vec!["0"; 100_000].join(","));
    assert!(problem(read_text(&around(&wide))).ends_with("at most 64 tests"));
    let values = format!(r#"{{"attribute":"a-number","in":[[{}0]]}}"#, "[".repeat(100_000));
    assert!(read_text(&around(&values)).is_err());
}
