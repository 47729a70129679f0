use push_model::{
    attributes::Attribute,
    id_key::IdKey,
    ids::{AppTag, AudienceKind, LedgerPage, MessageId},
    time::UnixMillis,
};

use super::*;

#[test]
fn the_name_of_a_page_says_which_it_is() {
    let (keys, app) = (Keys::new("push"), "a".parse().unwrap());
    let key = AppKey { id: app, generation: 1 };
    let app = &key.id;
    let ids = [
        MessageId::issue_named(app),
        MessageId::issue(app, AudienceKind::Broadcast),
        MessageId::derive(app, &IdKey::from([0; 16]), b"k"),
    ];
    for id in ids {
        let (page, field) = id.page_and_field(AppTag::of(&key));
        let stripe = match page {
            LedgerPage::Shared(_, _, [stripe, ..]) | LedgerPage::Own([stripe, ..]) => stripe,
        };
        let of_message = keys.message(&key, &id);
        let key = &of_message.page;
        let (_, name) = key.split_once("}:p").unwrap();
        assert_eq!(keys.stripe(stripe).page(name), *key);
        assert_eq!(StripeKeys::pages_of(key), keys.stripe(stripe).pages());
        let named = page_of_name(stripe, name).unwrap();
        let expanded = keys.stripe(stripe).expanded_entry(named, field);
        assert_eq!((named, expanded), (page, of_message.expanded_entry()));
    }
    assert_eq!(parse_listed_page("1a p.q"), Some((UnixMillis(26), "p.q")));
    assert_eq!(
        (parse_listed_page("1a"), parse_listed_page("x y"), page_of_name(0, "zz.0000")),
        (None, None, None)
    );
}

#[test]
fn all_keys_of_a_shard_share_one_hash_tag_and_shards_do_not() {
    let keys = Keys::new("push");
    let shard = keys.shard(&AppKey::first("a.b".parse().unwrap()), 7);
    let brand = Column::BuiltIn(Attribute::Brand);
    let (low, high) = (shard.low(brand, 1), shard.high(brand, 1));
    for key in [shard.base(), &low, &high, &shard.transports(0), &shard.chunk(5), &shard.newest()] {
        assert!(key.starts_with("push:{a.b/7}"), "{key}");
    }
    assert_eq!([low, high], ["push:{a.b/7}:2.1", "push:{a.b/7}:h2.1"]);
    let other = AppKey { id: "a.b".parse().unwrap(), generation: 2 };
    assert_eq!(keys.shard(&other, 7).base(), "push:{a.b@2/7}");
    assert_ne!(keys.shard(&AppKey::first("a".parse().unwrap()), 1).base(), shard.base());
}

#[test]
fn the_columns_of_an_apps_own_are_named_and_found_by_their_names() {
    for column in [Column::Topic, Column::Custom(CustomId(1)), Column::Custom(CustomId(65_535))] {
        assert_eq!(column_of_name(&column_name(column)), Some(column));
    }
    assert_eq!(
        (column_of_name("c"), column_of_name("2"), column_of_name("c65536")),
        (None, None, None)
    );
}
