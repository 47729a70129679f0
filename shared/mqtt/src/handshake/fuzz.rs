//! Answers of brokers to CONNECT, made of the corpus `mqtt`, and URLs of the corpus `url`.

use proptest::prop_assert;
use rmqtt_codec::v5::Connect;
use tokio::io::AsyncWriteExt as _;

use super::log_in;
use crate::MqttUrl;

#[test]
fn whatever_a_broker_answers_the_handshake_ends() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    push_fuzz::fuzz("mqtt", &[" \u{3}\0\0\0", "\u{40}", "\u{7f}"], |bytes| {
        runtime.block_on(async {
            let (mut near, mut far) = tokio::io::duplex(64 * 1024);
            far.write_all(bytes).await.unwrap();
            far.shutdown().await.unwrap();
            // Nothing reads at the far end: a CONNECT fits into the buffer between.
            let terms = log_in(&mut near, Connect::default()).await;
            if let Ok(terms) = terms {
                prop_assert!(terms.input.len() <= bytes.len());
            }
            Ok(())
        })
    });
}

#[test]
fn no_url_of_a_broker_is_printed_with_its_password() {
    push_fuzz::fuzz("url", &["://", "@", ":secret@", "mqtt", "mqtts", "/", "%40"], |url| {
        let Ok(url) = std::str::from_utf8(url) else { return Ok(()) };
        let behind = url.rsplit_once('@').map_or(url, |(_, host)| host);
        match url.parse::<MqttUrl>() {
            Ok(_) if behind.contains("secret") => {}
            Ok(parsed) => {
                let shown = format!("{parsed} {parsed:?}");
                prop_assert!(!shown.contains("secret"), "{url}: {shown}");
            }
            Err(wrong) => prop_assert!(!wrong.to_string().contains("secret")),
        }
        Ok(())
    });
}
