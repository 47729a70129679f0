//! The size of a message, compared with what the transports of its app carry.
//!
//! It is computed only for apps that have an account at a provider, and only for a message that may be too
//! large for one of them, which hardly any is.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use push_index::CarrierExtent;
use push_model::{app::AppKey, device::TransportKind, localized::Localized, message::Payload};
use push_providers::{TooLarge, by_kind, content::Content};

use crate::{
    apps::CachedApp,
    index_client::{IndexClient, Subject},
    rejection::Rejection,
};

/// Every transport carries the message of a body, or of a line, up to this many bytes: what the body does not
/// contain (ids, times, names of fields) has at most half of the rest of what the strictest one carries.
const CARRIED_BY_ALL: usize = 2048;

/// Returns those of the transports of a request that a line of this length is checked against.
pub(super) fn of_line(
    carriers: Option<&Arc<[TransportKind]>>,
    len: usize,
) -> Option<Arc<[TransportKind]>> {
    carriers.filter(|_| len > CARRIED_BY_ALL).map(Arc::clone)
}

/// Returns the transports that may carry messages of the app, if one in a body of `body_len` bytes may be too
/// large for one of them.
pub(super) async fn carriers(
    index: &IndexClient,
    cached: &CachedApp,
    body_len: usize,
    fresh: Duration,
) -> Option<Arc<[TransportKind]>> {
    if body_len <= CARRIED_BY_ALL || cached.app.transports.is_empty() {
        return None;
    }
    // Boxed: it is rare, and would be part of every connection.
    let kinds = Box::pin(async {
        let app = AppKey::from(&cached.app);
        let read = async {
            let extents = index.ask(Subject::app(&app.id), index.index.carriers(&app)).await?;
            let kind = |extent: CarrierExtent| extent.carrier.kind();
            Ok::<_, Rejection>(extents.into_iter().map(kind).collect())
        };
        cached.carriers.of(&cached.app, fresh, read).await
    });
    Some(kinds.await.into())
}

/// Checks that one of these transports, if there are any, carries a payload, in each of its languages. Returns a
/// warning for each of the others, whose devices do not get it.
pub(super) fn check(
    payload: &Payload<'_>,
    localized: Option<&Localized>,
    carriers: &[TransportKind],
) -> Result<Vec<String>, Rejection> {
    let bytes = serde_json::to_vec(payload).map_err(unwritten)?;
    let mut warnings = check_body(payload, &bytes, carriers, "")?;
    let Some(localized) = localized else { return Ok(warnings) };
    let bytes = Bytes::from(bytes);
    for tag in localized.0.keys() {
        let bytes = localized.payload(&bytes, Some(tag)).map_err(unwritten)?;
        let payload: Payload<'_> = serde_json::from_slice(&bytes).map_err(unwritten)?;
        let said = format!("in the language {tag} of notification.localized, ");
        warnings.extend(check_body(&payload, &bytes, carriers, &said)?);
    }
    Ok(warnings)
}

/// Checks one body; `language` begins what is said of it.
fn check_body(
    payload: &Payload<'_>,
    bytes: &[u8],
    carriers: &[TransportKind],
    language: &str,
) -> Result<Vec<String>, Rejection> {
    let content = Content { payload: payload.clone(), bytes };
    let too_large = |kind: &TransportKind| by_kind::check_size(*kind, &content).err();
    let problems: Vec<TooLarge> = carriers.iter().filter_map(too_large).collect();
    if !problems.is_empty() && problems.len() == carriers.len() {
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        return Err(Rejection::MessageIllegal(format!(
            "{language}no transport of this app carries it: {}",
            problems.join("; ")
        )));
    }
    let warning = |problem| format!("{language}{problem}: its devices do not get the message");
    Ok(problems.into_iter().map(warning).collect())
}

fn unwritten(error: serde_json::Error) -> Rejection {
    Rejection::MessageIllegal(error.to_string())
}

#[cfg(test)]
mod tests {
    use push_model::{
        custom::Declarations, ids::MessageId, localized::LocalText, message::Audience,
        time::UnixMillis,
    };
    use serde_json::json;

    use super::*;
    use crate::{
        message::{AppRules, Push},
        settings::Rules,
    };

    /// Returns the payload of a body, with the longest ids and numbers.
    fn payload(body: &str) -> Payload<'_> {
        let app: push_model::ids::AppId = "a".repeat(64).parse().unwrap();
        let (limits, attributes) = (Rules { max_client_ids: 1 }, &Declarations::default());
        let push = Push::read(body.as_bytes(), AppRules { limits, attributes }).unwrap();
        let id = MessageId::issue_named(&app);
        let (payload, _, audience) = push.into_parts(id, app, UnixMillis(u64::MAX / 2), u64::MAX);
        assert_eq!(audience, Audience::All);
        payload
    }

    fn data(len: usize) -> String {
        let data = json!({"k": "x".repeat(len)});
        json!({"type": 2, "time_to_live": 1, "condition": {"type": 0}, "data": data}).to_string()
    }

    fn notification(len: usize) -> String {
        let shown = json!({"title": "x".repeat(len)});
        json!({"type": 1, "time_to_live": 1, "condition": {"type": 0}, "notification": shown})
            .to_string()
    }

    /// Fills a body up to the size that all carry with what providers write in a longer form.
    fn longest(begin: &str, part: impl Fn(usize) -> String, end: &str) -> String {
        let mut body = begin.to_owned();
        for n in 0.. {
            let part = part(n);
            if body.len() + part.len() + end.len() > CARRIED_BY_ALL {
                break;
            }
            body.push_str(&part);
        }
        body + end
    }

    #[test]
    fn every_transport_carries_what_no_check_is_made_for() {
        let head = r#""time_to_live":1,"condition":{"type":0}"#;
        let reserved = |n: usize| format!(r#","gcm{n}":"""#);
        let keys = longest(
            &format!(r#"{{"type":2,{head},"data":{{"":"""#),
            reserved,
            r#"},"priority":"high","badge":1000000}"#,
        );
        let hints = r#""priority":"high","badge":1000000,"collapse_key":"a","channel_id":"a","category":"a","sound":"a","image":"https://a""#;
        let fields = r##""open_type":2,"open_content":"a","title":"a","small_icon":"a","small_icon_color":"#000000""##;
        let text = longest(
            &format!(r#"{{"type":1,{head},{hints},"notification":{{{fields},"desc":""#),
            |_| "\u{2028}\u{7f}".to_owned(),
            r#""}}"#,
        );
        let button = longest(
            &format!(
                r#"{{"type":1,{head},{hints},"notification":{{"notification_type":3,"icon":"a","open_type":"2","button_text":""#
            ),
            |_| r#"\""#.to_owned(),
            r#""}}"#,
        );
        for body in [keys, text, button, data(1_900), notification(1_900)] {
            assert!((CARRIED_BY_ALL - 100..=CARRIED_BY_ALL).contains(&body.len()), "{body}");
            let warnings = check(&payload(&body), None, &TransportKind::ALL);
            assert_eq!(warnings, Ok(vec![]), "{body}");
        }
    }

    #[test]
    fn a_message_that_no_transport_carries_is_illegal_and_says_by_how_much() {
        let body = notification(5_000);
        let carriers = [TransportKind::Fcm, TransportKind::Webpush];
        let Err(Rejection::MessageIllegal(problem)) = check(&payload(&body), None, &carriers)
        else {
            panic!("neither carries it");
        };
        assert!(
            problem.starts_with(
                "no transport of this app carries it: fcm carries 4096 bytes, and this is "
            ),
            "{problem}"
        );
        assert!(problem.contains(" more; webpush carries 3993 bytes, and this is "), "{problem}");
    }

    #[test]
    fn a_message_that_some_transports_carry_is_accepted_with_a_warning_about_each_other() {
        let body = notification(5_000);
        for carrier in [TransportKind::Mqtt, TransportKind::Discard, TransportKind::Webhook] {
            let carriers = [TransportKind::Apns, carrier, TransportKind::Fcm];
            let warnings = check(&payload(&body), None, &carriers).unwrap();
            assert_eq!(warnings.len(), 2, "{warnings:?}");
            for (warning, name) in warnings.iter().zip(["apns", "fcm"]) {
                assert!(warning.starts_with(&format!("{name} carries 4096 bytes, ")), "{warning}");
                assert!(warning.ends_with("its devices do not get the message"), "{warning}");
            }
        }
        assert_eq!(check(&payload(&body), None, &[]), Ok(vec![]), "no device misses it");
    }

    #[test]
    fn each_language_must_be_carried_and_the_one_that_is_not_is_named() {
        let body = notification(10);
        let text = |len: usize| LocalText { title: None, desc: Some("x".repeat(len)) };
        let localized = |len| Localized([("de".into(), text(10)), ("fr".into(), text(len))].into());
        let check = |len, carriers: &[TransportKind]| {
            check(&payload(&body), Some(&localized(len)), carriers)
        };
        assert_eq!(check(1_000, &TransportKind::ALL), Ok(vec![]));
        let both = [TransportKind::Fcm, TransportKind::Mqtt];
        let warnings = check(5_000, &both).unwrap();
        let [warning] = &warnings[..] else { panic!("one language is too large: {warnings:?}") };
        assert!(warning.starts_with("in the language fr of notification.localized, fcm carries "));
        let Err(Rejection::MessageIllegal(problem)) = check(5_000, &both[..1]) else {
            panic!("no transport carries it");
        };
        assert!(problem.starts_with("in the language fr of "), "{problem}");
    }
}
