//! Input from an unauthenticated client, made of the corpus `mqtt-client`.

use proptest::{prop_assert, prop_assert_eq};

use super::TestBroker;

/// The bytes by which answers may exceed the input: CONNACK and DISCONNECT.
const ANSWER: usize = 512;

#[test]
fn whatever_a_client_sends_its_connection_ends_and_nothing_of_it_stays() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tokens =
        &["\u{10}", "\u{4}MQTT\u{5}", "\u{4}MQTT\u{4}", "\u{3}a:d", "\u{8}push/a/d", "\u{11}\0"];
    push_fuzz::fuzz("mqtt-client", tokens, |bytes| {
        runtime.block_on(async {
            let broker = TestBroker::new();
            let answer = broker.answer(bytes).await;
            prop_assert!(answer.first().is_none_or(|first| *first == 0x20), "CONNACK comes first");
            prop_assert!(answer.len() <= bytes.len() + ANSWER, "{}", answer.len());
            let usage = broker.admission.usage();
            prop_assert_eq!((usage.connections, usage.unauthenticated), (0, 0));
            let (sessions, waiting) = broker.context.sessions.usage();
            prop_assert!(sessions <= usize::from(!answer.is_empty()), "{} sessions", sessions);
            prop_assert_eq!(waiting, 0);
            Ok(())
        })
    });
}
