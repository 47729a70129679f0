//! Random and damaged bodies.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Push::read(&body, RULES);
    }

    #[test]
    fn a_damaged_push_is_read_or_refused(at in 0usize..400, byte: u8) {
        let mut body = with("condition.targeting.country", json!(["CN"]));
        body["condition"]["client_ids"] = json!(["a", "b"]);
        body["notification"] = json!({"title": "t", "open_type": 1, "small_icon_color": "#000000"});
        body["data"] = json!({"k": "v"});
        let mut body = body.to_string().into_bytes();
        let at = at % body.len();
        body[at] = byte;
        match std::str::from_utf8(&body) {
            Ok(text) => drop(read_text(text)),
            Err(_) => prop_assert!(Push::read(&body, RULES).is_err()),
        }
    }
}
