use push_model::{
    attributes::Attribute,
    custom::CustomId,
    filter::{Column as Name, Filter, Leaf, Node, Test},
};

use super::{
    super::table::{Criterion, LOST, TableGroup},
    *,
};
use crate::redis::{devices::Section, dictionary::Dictionary};

/// The planes of a column.
fn planes(codes: &[u16]) -> (Vec<u8>, Vec<u8>) {
    let plane = |byte: usize| codes.iter().map(|code| code.to_be_bytes()[byte]).collect();
    let (mut high, low): (Vec<u8>, Vec<u8>) = (plane(0), plane(1));
    high.truncate(high.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    (low, high)
}

/// The candidates among slots with these codes, by column.
fn candidates(criteria: &Criteria, columns: &[&[u16]]) -> Result<Vec<u16>, OutdatedTables> {
    let planes: Vec<_> = columns.iter().map(|codes| planes(codes)).collect();
    let columns = planes.iter().map(|(low, high)| Column { low, high });
    criteria.candidates(&columns.collect::<Vec<_>>())
}

fn complete(table: &mut Table, of: Criterion<'_>, known: &Dictionary, from: usize, to: usize) {
    let mut group = TableGroup::of(of);
    group.add(table, of);
    group.complete(known, from, to);
}

fn criteria<const N: usize>(tables: [Table; N]) -> Criteria {
    Criteria::new(None, tables.into(), UnixMillis(0))
}

#[test]
fn a_code_newer_than_the_tables_is_noticed_and_a_device_without_a_value_does_not_match() {
    let criteria = criteria([Table::new(Name::BuiltIn(Attribute::Country))]);
    assert_eq!(candidates(&criteria, &[&[0, 0]]), Ok(vec![]));
    assert_eq!(candidates(&criteria, &[&[0, 1]]), Err(OutdatedTables));
    assert_eq!(criteria.accept_codes(&[1, 0, 0, 0, 0, 0]), Err(OutdatedTables));
    assert_eq!(criteria.accept_codes(&[0, 9, 0, 0, 0, 0]), Ok(false));
    let criteria = criteria.without_unknown();
    assert_eq!(candidates(&criteria, &[&[0, 1, 300]]), Ok(vec![]));
    assert_eq!(criteria.accept_codes(&[1, 0, 0, 0, 0, 0]), Ok(false));
}

#[test]
fn a_table_is_completed_with_what_the_dictionary_has_learnt_and_keeps_what_it_knew() {
    let mut targeting = Targeting::all_devices();
    targeting.set(Attribute::Language, vec!["zh".into()]);
    let mut known = Dictionary::default();
    known.add_read(0, vec!["en".into(), "".into(), "zh-cn".into()]);
    let mut table = Table::new(Name::BuiltIn(Attribute::Language));
    let criterion = Criterion::List(&targeting, Attribute::Language);
    complete(&mut table, criterion, &known, 0, usize::MAX);
    let values = |table: &Table| (0..6).map(|code| table.value_of(code)).collect::<Vec<_>>();
    let before = [NO_MATCH, NO_MATCH, UNKNOWN_CODE, MATCH, UNKNOWN_CODE, UNKNOWN_CODE];
    assert_eq!(values(&table), before);
    known.add(2, "zh".into());
    known.add(4, "zha".into());
    complete(&mut table, criterion, &known, 0, 3);
    assert_eq!(values(&table)[2..], [MATCH, MATCH, UNKNOWN_CODE, UNKNOWN_CODE]);
    complete(&mut table, criterion, &known, 3, usize::MAX);
    assert_eq!(values(&table)[2..], [MATCH, MATCH, NO_MATCH, UNKNOWN_CODE]);
    assert_eq!(table.value_of(999), UNKNOWN_CODE);
}

#[test]
fn a_slot_matches_if_every_criterion_does_and_one_mismatch_decides() {
    let table = |attribute, by_code: &[u8]| Table::of(Name::BuiltIn(attribute), by_code.to_vec());
    let tables = [
        table(Attribute::Country, &[NO_MATCH, MATCH, NO_MATCH]),
        table(Attribute::Brand, &[NO_MATCH, NO_MATCH, MATCH]),
    ];
    let criteria = criteria(tables);
    let candidates = |countries: &[u16], brands: &[u16]| {
        super::tests::candidates(&criteria, &[countries, brands])
    };
    assert_eq!(candidates(&[1, 0, 2, 1, 1], &[2, 2, 2, 1, 2]), Ok(vec![0, 4]));
    assert_eq!(candidates(&[1, 1, 1], &[2]), Ok(vec![0]), "a slot beyond a column does not match");
    assert_eq!(
        candidates(&[0, 2], &[3, 3]),
        Ok(vec![]),
        "an unknown code is not looked at behind a mismatch"
    );
    assert_eq!(candidates(&[0, 1], &[2, 3]), Err(OutdatedTables));
    assert_eq!(candidates(&[3, 0], &[0, 0]), Err(OutdatedTables));
}

#[test]
fn a_device_is_a_candidate_for_the_partitions_that_it_is_in_and_for_those_before() {
    use push_model::device::TransportKind::{Apns, Fcm, Mqtt};
    let byte =
        |now, before: Option<_>| carrier_byte(Carrier::first(now), before.map(Carrier::first));
    let bytes = [0, byte(Fcm, None), byte(Fcm, Some(Mqtt)), byte(Mqtt, None)];
    let of = |kind| {
        let criteria = Criteria::new(Some(Carrier::first(kind)), [].into(), UnixMillis(0));
        candidates(&criteria, &[&bytes.map(u16::from)]).unwrap()
    };
    assert_eq!((of(Mqtt), of(Fcm), of(Apns)), (vec![2, 3], vec![1, 2], vec![]));
}

#[test]
fn a_tally_counts_devices_after_each_criterion_and_at_the_end_by_transport() {
    use push_model::device::TransportKind::{Fcm, Mqtt};
    let table = |attribute| Table::of(Name::BuiltIn(attribute), vec![NO_MATCH, MATCH, NO_MATCH]);
    let criteria = criteria([table(Attribute::Country), table(Attribute::Brand)]);
    let [mqtt, fcm] = [Mqtt, Fcm].map(Carrier::first);
    let (mqtt, fcm) = (carrier_byte(mqtt, None), carrier_byte(fcm, Some(mqtt)));
    // The second slot is free, and the last one is beyond the end of the second column.
    let transports = [mqtt, 0, fcm, mqtt, fcm];
    let tally = |countries: &[u16], brands: &[u16]| {
        let planes = [planes(countries), planes(brands)];
        let columns = planes.each_ref().map(|(low, high)| Column { low, high });
        criteria.tally(&columns, &transports)
    };
    let counted = tally(&[1, 1, 1, 2, 1], &[1, 1, 1, 1]).unwrap();
    assert_eq!(counted.after_each, [3, 2]);
    assert_eq!((counted.by_byte[usize::from(mqtt)], counted.by_byte[usize::from(fcm)]), (1, 1));
    assert_eq!(counted.by_byte.iter().sum::<u64>(), 2);
    assert_eq!(tally(&[1, 9, 1, 1], &[0, 9, 0, 0, 0]).unwrap().after_each, [3, 0]);
    assert_eq!(tally(&[9, 1, 1, 1], &[1; 5]), Err(OutdatedTables), "a code of a later device");
}

/// A filter over leaves on these columns, and its criteria with these tables.
fn with_filter(root: Node, tables: Vec<Table>) -> Criteria {
    let leaf = |table: &Table| Leaf::new(table.column, None, Test::In(vec!["x".into()]));
    let filter = Filter::new(tables.iter().map(leaf).collect(), root).unwrap();
    let mut targeting = Targeting::all_devices();
    targeting.filter = Some(Arc::new(filter));
    Criteria::new(None, tables.into(), UnixMillis(0)).beside_lists(&targeting)
}

#[test]
fn a_lost_value_matches_neither_a_leaf_nor_its_opposite_and_a_missing_one_matches_the_opposite() {
    let column = Name::Custom(CustomId(7));
    let table = || vec![Table::of(column, vec![NO_MATCH, MATCH, NO_MATCH])];
    let codes: &[u16] = &[1, 2, 0, 300];
    let not = with_filter(Node::Not(Box::new(Node::Leaf(0))), table());
    assert_eq!(candidates(&not, &[codes]), Err(OutdatedTables));
    assert_eq!(candidates(&not.without_unknown(), &[codes]), Ok(vec![1, 2]));
    let is = with_filter(Node::Leaf(0), table()).without_unknown();
    assert_eq!(candidates(&is, &[codes]), Ok(vec![0]));
    assert_eq!(is.tables[0].value_of(300), LOST);
    let either = vec![Node::Leaf(0), Node::Not(Box::new(Node::Leaf(0)))];
    let either = with_filter(Node::Any(either), table()).without_unknown();
    assert_eq!(candidates(&either, &[codes]), Ok(vec![0, 1, 2]));
}

#[test]
fn a_filter_reads_each_column_once_and_one_that_ends_early_has_no_values_behind_its_end() {
    let (a, b) = (Name::Custom(CustomId(1)), Name::BuiltIn(Attribute::Brand));
    let table = |column, code: usize| {
        let mut by_code = vec![NO_MATCH; 4];
        by_code[code] = MATCH;
        Table::of(column, by_code)
    };
    // Brand 1, or not attribute 1 and attribute 2.
    let neither = Node::Not(Box::new(Node::Any(vec![Node::Leaf(0), Node::Leaf(2)])));
    let root = Node::Any(vec![Node::Leaf(1), neither]);
    let criteria = with_filter(root, vec![table(a, 1), table(b, 1), table(a, 2)]);
    let needed: Vec<_> = criteria.needed().collect();
    assert_eq!(needed, [Needed::Codes(a), Needed::Codes(b)]);
    let found = candidates(&criteria, &[&[1, 2, 3, 1], &[0, 0, 0, 1, 0, 1]]);
    assert_eq!(found, Ok(vec![2, 3, 4, 5]));
}

#[test]
fn the_columns_of_a_filter_stay_the_same_when_its_topics_become_known() {
    let leaf = |topic: &str| Leaf::new(Name::Topic, None, Test::In(vec![topic.into()]));
    let root = Node::Any((0..3).map(Node::Leaf).collect());
    let filter = Filter::new(vec![leaf("a"), leaf("b"), leaf("a")], root).unwrap();
    let mut targeting = Targeting::all_devices();
    targeting.filter = Some(Arc::new(filter));
    let needed = |codes: [usize; 3]| {
        let table = |code: usize| {
            let mut by_code = vec![NO_MATCH; 4];
            if let Some(known) = by_code.get_mut(code).filter(|_| code > 0) {
                *known = MATCH;
            }
            Table::of(Name::Topic, by_code)
        };
        let tables: Vec<_> = codes.map(table).into();
        Criteria::new(None, tables.into(), UnixMillis(0)).beside_lists(&targeting).needed().count()
    };
    assert_eq!([needed([0, 0, 0]), needed([2, 0, 2]), needed([2, 3, 2])], [2, 2, 2]);
}

#[test]
fn a_device_matches_by_any_of_its_topics_and_a_lost_one_does_not_hide_another() {
    let table = Table::of(Name::Topic, vec![NO_MATCH, MATCH, NO_MATCH]);
    let accepts = |root: Node, topics: &[u16]| {
        let criteria = with_filter(root, vec![table.clone()]).without_unknown();
        let mut section = vec![0, u8::try_from(topics.len()).unwrap()];
        section.extend(topics.iter().flat_map(|code| code.to_be_bytes()));
        let section = Section::decode(&section).unwrap();
        let filter = criteria.filter.as_ref().unwrap();
        filter.accepts(&criteria.tables, &Codes::default(), section).unwrap()
    };
    let (is, not) = (|| Node::Leaf(0), || Node::Not(Box::new(Node::Leaf(0))));
    assert_eq!([accepts(is(), &[2, 1]), accepts(not(), &[2, 1])], [true, false]);
    assert_eq!([accepts(is(), &[2]), accepts(not(), &[2])], [false, true]);
    assert_eq!([accepts(is(), &[1, 900]), accepts(not(), &[1, 900])], [true, false]);
    assert_eq!([accepts(is(), &[900]), accepts(not(), &[900])], [false, false]);
    assert_eq!([accepts(is(), &[]), accepts(not(), &[])], [false, true]);
    assert!(with_filter(not(), vec![table.clone()]).needs_records());
    assert!(!with_filter(is(), vec![table.clone()]).needs_records());
}
