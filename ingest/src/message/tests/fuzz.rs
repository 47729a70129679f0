//! Bodies made of the corpus `message`.

use proptest::{prop_assert, prop_assert_eq};

use super::*;

/// Names and values that mean something in a body.
const TOKENS: [&str; 27] = [
    "\"type\":",
    "\"time_to_live\":",
    "\"condition\":{\"type\":1,\"client_ids\":[",
    "\"targeting\":{",
    "\"country\":[\"CN\"]",
    "\"notification\":{",
    "\"data\":",
    "\"idempotency_key\":\"",
    "null",
    "18446744073709551616",
    "1e999",
    "\\u0000",
    "\\ud800",
    "[[[[",
    "{\"\":",
    "\u{feff}",
    "1e0",
    "-0.0",
    "\"zh_TW_#Hant\"",
    "\"filter\":{\"all\":[",
    "{\"not\":",
    "{\"attribute\":\"a-number\",\"gte\":",
    "{\"attribute\":\"language\",\"in\":[",
    "{\"topic\":\"f1\"}",
    "\"user_ids\":[\"u\"]",
    "\"sample\":{\"from\":0,\"to\":0.5,\"seed\":\"s\"}",
    "\"localized\":{\"zh\":{\"title\":",
];

#[test]
fn a_body_is_read_alike_in_every_way_or_refused() {
    push_fuzz::fuzz("message", &TOKENS, |body| {
        let push = Push::read(body, rules());
        let line = Push::read_line(body, rules());
        match super::json::utf8(body) {
            Ok(text) => prop_assert_eq!(&push, &Push::read_used_fields(text, rules())),
            Err(_) => prop_assert!(push.is_err()),
        }
        // The column of an error in a line's own key is counted in another way, and that key is known in a
        // line only.
        let without_notes = |push| Push { notes: Notes::default(), ..push };
        prop_assert_eq!(
            push.ok().map(without_notes),
            line.ok().map(|(push, _)| without_notes(push))
        );
        Ok(())
    });
}
