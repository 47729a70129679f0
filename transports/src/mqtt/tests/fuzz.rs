//! A session with a broker that sends inputs made of the corpus `mqtt`. Every device gets an answer, and the
//! session ends.

use std::num::NonZeroU16;

use bytes::BytesMut;
use proptest::{prop_assert, prop_assert_eq};
use push_model::ids::MessageId;
use push_mqtt::handshake::SessionParams;
use rmqtt_codec::v5::Codec;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{DEADLINE, NOW, session::recipient};
use crate::{
    Lifetime,
    mqtt::{
        expiry::Expiry,
        session::{self, SessionLimits},
        sub_batch::SubBatch,
    },
};

/// More than the window, so that acknowledgements let more be sent.
const DEVICES: usize = 12;
const WINDOW: NonZeroU16 = NonZeroU16::new(8).unwrap();

#[test]
fn whatever_a_broker_sends_every_device_is_answered_for_and_the_session_ends() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    push_fuzz::fuzz("mqtt", &["\u{40}\u{2}\0\u{1}", "\u{50}\0", "\u{7f}"], |bytes| {
        let (devices, handed_over) = runtime.block_on(outcomes(bytes));
        prop_assert_eq!(devices, DEVICES);
        prop_assert!(handed_over > 0, "what was handed over has an outcome");
        Ok(())
    });
}

/// Runs a session against these bytes. Returns the number of devices with an answer, and of those with an
/// outcome; the others are given back.
async fn outcomes(bytes: &[u8]) -> (usize, usize) {
    let (near, mut far) = tokio::io::duplex(64 * 1024);
    let terms = SessionParams {
        codec: Codec::default(),
        input: BytesMut::new(),
        session_present: false,
        receive_max: WINDOW,
        ping_after: DEADLINE,
        user_properties: Vec::new(),
    };
    let limits = SessionLimits { window: WINDOW, ack_timeout: DEADLINE };
    let (sending, mut sub_batches) = mpsc::channel(1);
    let (reply, answers) = oneshot::channel();
    let now = Instant::now();
    let sub_batch = SubBatch {
        message_id: MessageId::issue_named(&"app".parse().unwrap()),
        recipients: (0..DEVICES).map(recipient).collect(),
        payload: b"{}".to_vec().into(),
        expiry: Expiry::new(Lifetime::Until(NOW.plus(DEADLINE * 100)), NOW, now),
        sending: crate::Sending::unrestricted(NOW),
        positions: Vec::new(),
        hand_over_until: now + DEADLINE,
        answer_until: now + DEADLINE * 2,
        reply,
    };
    sending.send(sub_batch).await.unwrap();
    let stop = CancellationToken::new();
    let broker = async {
        // The first messages are in flight when the bytes come.
        let _ = far.read_u8().await;
        let _ = far.write_all(bytes).await;
        let _ = far.shutdown().await;
        let mut rest = Vec::new();
        let _ = far.read_to_end(&mut rest).await;
    };
    let _ = tokio::join!(session::run(near, terms, limits, &mut sub_batches, &stop), broker);
    let answers = answers.await.unwrap_or_default();
    (answers.len(), answers.iter().flatten().count())
}
