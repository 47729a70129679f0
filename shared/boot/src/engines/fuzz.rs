//! Parses URLs made from the corpus `url`, whose passwords are all `secret`. No printed form of a
//! URL shows the password.

use proptest::prop_assert;

use super::urls::{IndexUrl, QueueUrl};

const TOKENS: [&str; 12] =
    ["://", "@", ":secret@", "/", "?", "#", ",", "[::1]", "%2F", "redis", "amqp", "\u{202e}"];

#[test]
fn no_url_of_an_engine_is_printed_with_its_password() {
    push_fuzz::fuzz("url", &TOKENS, |url| {
        let Ok(url) = std::str::from_utf8(url) else { return Ok(()) };
        let queue = QueueUrl::parse(url).map(|url| format!("{url} {url:?}"));
        let index = IndexUrl::parse(url).map(|url| format!("{url} {url:?}"));
        // Behind the last @ stands a host, whatever its name.
        let behind = url.rsplit_once('@').map_or("", |(_, host)| host);
        for printed in [queue, index] {
            match printed {
                Ok(shown) if !url.starts_with("sqlite:") && !behind.contains("secret") => {
                    let is_host = !url.contains('@') || url.matches("secret").count() == 0;
                    prop_assert!(is_host || !shown.contains("secret"), "{url}: {shown}");
                }
                Ok(_) => {}
                Err(wrong) => prop_assert!(!wrong.contains("secret"), "{url}: {wrong}"),
            }
        }
        Ok(())
    });
}
