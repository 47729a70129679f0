//! The condition: targeting criteria and client ids.

use push_model::{
    attributes::Attribute,
    targeting::{MAX_TARGETING_VALUES, Targeting},
};

use super::*;

#[test]
fn targeting_is_normalised_and_a_bad_value_is_named_by_its_path() {
    let targeting = |targeting: Value| {
        let mut body = with("condition.type", json!(1));
        body["condition"]["targeting"] = targeting;
        read(&body)
    };
    let push = targeting(json!({
        "country": ["cn", "CN", "sg"], "language": ["zh_CN", "en", "zh"], "brand": [" Xiao Mi"],
        "model": [], "os_version": ["034"], "app_version": null
    }));
    let Audience::Targeting(wanted) = push.unwrap().wanted.audience else { panic!("targeting") };
    let list = |a| wanted.wanted(a).iter().map(|value| &**value).collect::<Vec<_>>();
    assert_eq!(list(Attribute::Country), ["CN", "SG"]);
    assert_eq!(list(Attribute::Language), ["en", "zh"], "zh-CN is a zh");
    assert_eq!(list(Attribute::Brand), ["XIAOMI"]);
    assert_eq!(list(Attribute::OsVersion), ["34"]);
    assert!(wanted.wanted(Attribute::Model).is_empty());

    assert_eq!(
        targeting(json!({})).unwrap().wanted.audience,
        Audience::Targeting(Targeting::all_devices())
    );
    assert_eq!(
        problem(targeting(json!({"country": ["CN", "China"]}))),
        "condition.targeting.country[1] must be two letters (ISO 3166-1 alpha-2), like CN"
    );
    for (list, bad) in [
        ("language", json!(["z h"])),
        ("brand", json!([" "])),
        ("model", json!(["a\u{7}"])),
        ("os_version", json!(["14.0"])),
        ("app_version", json!([""])),
        ("model", json!(["x".repeat(129)])),
    ] {
        let text = problem(targeting(json!({list: bad})));
        assert!(text.starts_with(&format!("condition.targeting.{list}[0] must ")), "{text}");
    }
    for wrong in [json!("CN"), json!([1]), json!([null]), json!({"0": "CN"}), json!([["CN"]])] {
        let text = problem(targeting(json!({"country": wrong})));
        assert!(text.starts_with("condition.targeting.country"), "{text}");
    }
}

#[test]
fn targeting_has_a_bound_on_its_different_values_in_all_lists_together() {
    let targeting = |models: usize, versions: usize| {
        let numbered = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        let mut body = with("condition.type", json!(1));
        let repeated = [numbered(models), vec![" 0".to_owned(); 5]].concat();
        body["condition"]["targeting"] =
            json!({"model": repeated, "app_version": numbered(versions)});
        read(&body)
    };
    assert!(targeting(MAX_TARGETING_VALUES, 0).is_ok(), "repeats count once");
    assert!(targeting(MAX_TARGETING_VALUES - 7, 7).is_ok());
    assert_eq!(
        problem(targeting(MAX_TARGETING_VALUES - 7, 8)),
        "condition.targeting has 10001 different values in all its lists, 9993 of them in \
         condition.targeting.model; at most 10000 are allowed"
    );
}

#[test]
fn client_ids_are_counted_without_repeats() {
    let clients = |ids: Value| {
        let mut body = with("condition.type", json!(2));
        body["condition"]["client_ids"] = ids;
        read(&body)
    };
    let three = clients(json!(["b", "a", "b", "c", "a"])).unwrap().wanted;
    let Audience::Clients(ids) = three.audience else { panic!("three clients are allowed") };
    assert_eq!(ids.len(), 3);
    assert_eq!(
        clients(json!(["a", "b", "c", "d", "a"])),
        Err(Rejection::TooManyClients { given: 4, limit: 3, with_users: false })
    );
    let required =
        "condition.client_ids or condition.user_ids is required with condition.type 2 (users)";
    assert_eq!(problem(clients(Value::Null)), required);
    assert_eq!(problem(clients(json!([]))), "condition.client_ids must name at least one device");
    for bad in [
        json!(["a", "b c"]),
        json!(["a", ""]),
        json!(["a", 5]),
        json!(["a", null]),
        json!(["a", "x".repeat(129)]),
    ] {
        let text = problem(clients(bad));
        assert!(text.starts_with("condition.client_ids[1]"), "{text}");
    }
    assert!(problem(clients(json!("a"))).starts_with("condition.client_ids"));
}

#[test]
fn what_the_condition_type_does_not_use_has_no_effect() {
    for junk in [json!(5), json!(["", 1]), json!({"contry": 1})] {
        let mut body = valid();
        body["condition"]["client_ids"] = junk.clone();
        body["condition"]["user_ids"] = junk.clone();
        body["condition"]["targeting"] = junk.clone();
        assert_eq!(read(&body).unwrap().wanted.audience, Audience::All);
        body["notification"] = json!({});
        body["data"] = junk.clone();
        assert!(read(&body).is_ok(), "data of a notification");
        let mut body = with("type", json!(2));
        body["notification"] = junk;
        assert!(read(&body).is_ok(), "a notification of data");
    }
}

#[test]
fn a_condition_alone_is_read_as_that_of_a_push_with_the_same_errors() {
    let conditions = [
        json!({"type": 0}),
        json!({"type": 1, "targeting": {"country": ["sg", "SG"], "language": ["zh"]}}),
        json!({"type": 2, "client_ids": ["b", "a", "b"]}),
        json!({"type": 2, "client_ids": ["b"], "user_ids": ["u"]}),
        json!({"type": 0, "sample": {"from": 0, "to": 10, "seed": "s"}}),
        json!({"type": 1, "targeting": {"filter": {"topic": "f1"}}}),
        json!({"type": 1, "targeting": {"filter": {"attribute": "none", "in": [1]}}}),
        json!({"type": 1, "targeting": {"contry": ["SG"]}}),
        json!({"type": 1, "targeting": {"country": ["SG", "Singapore"]}}),
        json!({"type": 2, "client_ids": ["a", "b", "c", "d"]}),
        json!({"type": 3}),
        json!({"kind": 0}),
        json!([0]),
        json!(null),
    ];
    for condition in conditions {
        let of_push = read(&with("condition", condition.clone())).map(|push| push.wanted);
        for body in [json!({"condition": condition}), json!({"type": "x", "condition": condition})]
        {
            assert_eq!(read_audience(body.to_string().as_bytes(), rules()), of_push, "{body}");
        }
    }
    for body in ["", "[]", "{", "{}", "\"condition\""] {
        assert!(read_audience(body.as_bytes(), rules()).is_err(), "{body}");
    }
}

#[test]
fn users_are_named_beside_or_instead_of_devices_with_one_limit() {
    let named = |condition: Value| {
        let mut condition = condition;
        condition["type"] = json!(2);
        read(&with("condition", condition))
    };
    let users = |push: Result<Push<'_>, Rejection>| {
        let wanted = push.unwrap().wanted;
        wanted.users.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(users(named(json!({"user_ids": ["v", "u@x|1", "v"]}))), ["u@x|1", "v"]);
    assert_eq!(users(named(json!({"user_ids": ["u"], "client_ids": []}))), ["u"]);
    let both = named(json!({"user_ids": ["u", "v"], "client_ids": ["a", "b"]}));
    let many = Rejection::TooManyClients { given: 4, limit: 3, with_users: true };
    assert_eq!(both, Err(many.clone()));
    assert!(many.message().contains("condition.user_ids name 4 different devices and users"));
    assert!(problem(named(json!({"user_ids": []}))).contains("at least one user"));
    assert!(problem(named(json!({"user_ids": ["a", "b c"]}))).starts_with("condition.user_ids[1]"));
}

#[test]
fn a_sample_is_a_range_of_percent_and_is_never_ignored() {
    let sampled = |kind: u8, sample: Value| {
        let condition =
            json!({"type": kind, "targeting": {}, "client_ids": ["a"], "sample": sample});
        read(&with("condition", condition))
    };
    let share = |from: Value, to: Value| json!({"from": from, "to": to, "seed": "spring"});
    for kind in [0, 1] {
        let Audience::Targeting(targeting) =
            sampled(kind, share(json!(0.05), json!(1e1))).unwrap().wanted.audience
        else {
            panic!("a sample is a targeting")
        };
        let sample = targeting.sample.unwrap();
        assert_eq!((sample.from, sample.to, &*sample.seed), (5, 1000, "spring"));
    }
    let whole = sampled(0, share(json!(0), json!(100))).unwrap().wanted.audience;
    assert_eq!(whole, Audience::All, "everyone is no sample");
    for (from, to) in [(json!(0), json!(0.001)), (json!(-1), json!(5)), (json!(0), json!(101))] {
        let told = problem(sampled(0, share(from, to)));
        assert!(told.contains("from 0 to 100 with at most two decimals"), "{told}");
    }
    let told = problem(sampled(0, share(json!(10), json!(10))));
    assert_eq!(told, "condition.sample.from must be less than condition.sample.to");
    let told = problem(sampled(1, json!({"from": 0, "to": 10})));
    assert_eq!(told, "condition.sample.seed is required");
    let told = problem(sampled(1, json!({"from": 0, "to": 10, "seed": "", "of": 1})));
    assert!(told.contains("unknown field `of`"), "{told}");
    let told = problem(sampled(2, share(json!(0), json!(10))));
    assert!(told.starts_with("condition.sample must not be used with condition.type 2"), "{told}");
}

#[test]
fn null_in_a_condition_reads_as_absent_and_takes_no_restriction_away_that_stands_beside_it() {
    let wanted = |condition: Value| read(&with("condition", condition)).map(|push| push.wanted);
    for (with_null, without) in [
        (json!({"type": 1, "targeting": {"filter": null}}), json!({"type": 1, "targeting": {}})),
        (
            json!({"type": 1, "targeting": {"filter": null, "country": ["SG"]}, "sample": null}),
            json!({"type": 1, "targeting": {"country": ["SG"]}}),
        ),
        (
            json!({"type": 1, "targeting": {"filter": {"topic": "f1", "in": null}, "country": null}}),
            json!({"type": 1, "targeting": {"filter": {"topic": "f1"}}}),
        ),
        (json!({"type": 0, "sample": null, "targeting": {"filter": null}}), json!({"type": 0})),
        (
            json!({"type": 2, "client_ids": ["a"], "user_ids": null, "sample": null}),
            json!({"type": 2, "client_ids": ["a"]}),
        ),
    ] {
        assert_eq!(wanted(with_null.clone()), wanted(without), "{with_null}");
    }
    for refused in [
        json!({"type": 1, "targeting": null}),
        json!({"type": 1, "targeting": {"filter": {}}}),
        json!({"type": 1, "targeting": {"filter": {"not": null}}}),
        json!({"type": 1, "targeting": {"filter": {"all": [null]}}}),
        json!({"type": 1, "targeting": {"filter": {"attribute": "a-string", "in": null}}}),
        json!({"type": 0, "sample": {"from": 0, "to": null, "seed": "s"}}),
        json!({"type": 2, "client_ids": null, "user_ids": null}),
    ] {
        assert!(wanted(refused.clone()).is_err(), "{refused}");
    }
}
