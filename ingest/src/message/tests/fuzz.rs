//! Bodies made of the corpus `message`.

use proptest::{prop_assert, prop_assert_eq};

use super::*;

/// Names and values that mean something in a body.
const TOKENS: [&str; 19] = [
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
];

#[test]
fn a_body_is_read_alike_in_every_way_or_refused() {
    push_fuzz::fuzz("message", &TOKENS, |body| {
        let push = Push::read(body, RULES);
        let line = Push::read_line(body, RULES);
        // The column of an error in a line's own key is counted in another way.
        prop_assert_eq!(push.as_ref().ok(), line.as_ref().ok().map(|(push, _)| push));
        match super::json::utf8(body) {
            Ok(text) => prop_assert_eq!(push, Push::read_used_fields(text, RULES)),
            Err(_) => prop_assert!(push.is_err()),
        }
        Ok(())
    });
}
