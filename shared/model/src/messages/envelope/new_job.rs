//! Writes the JSON of a new job, for ingest.
//!
//! It is written field by field and not by derived code. Names and ids need no escapes, but serde
//! searches each of them, which was two thirds of the instructions of writing a job. The derived
//! form is the definition: a test compares the two, and the destructuring patterns here do not
//! compile until a new field is written.

use serde::Serialize;
use uuid::fmt::Hyphenated;

use crate::{
    hints::Hints,
    localized::Localized,
    message::{Audience, Notification, Payload},
    trace_parent::TraceParent,
};

/// Capacity for a job to one device, so that its buffer is not moved while it is written.
const ORDINARY_JOB: usize = 512;

/// The fields of a job beside its payload and its audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JobMarks<'a> {
    /// [`Job::dedup_nonce`](super::Job::dedup_nonce).
    pub dedup_nonce: u64,
    /// [`Job::app_generation`](super::Job::app_generation).
    pub app_generation: u64,
    /// [`Job::counted`](super::Job::counted).
    pub counted: bool,
    /// [`Job::trace`](super::Job::trace).
    pub trace: Option<TraceParent>,
    /// [`Job::sent_by`](super::Job::sent_by).
    pub sent_by: Option<&'a str>,
    /// [`Job::localized`](super::Job::localized).
    pub localized: Option<&'a Localized>,
}

/// Writes a new job, for [`encode_job_envelope`](super::encode_job_envelope).
///
/// # Errors
/// Never in practice: all values of these types have a JSON form.
pub fn encode_job(
    payload: &Payload<'_>,
    audience: &Audience,
    marks: JobMarks<'_>,
) -> Result<Vec<u8>, serde_json::Error> {
    let mut out = Vec::with_capacity(ORDINARY_JOB);
    write_job(&mut out, payload, audience, marks)?;
    Ok(out)
}

/// As [`encode_job`], appended to `out`, so that a caller can use one buffer for many jobs.
///
/// # Errors
/// As [`encode_job`]; what was written by then is left in `out`.
pub fn write_job(
    out: &mut Vec<u8>,
    payload: &Payload<'_>,
    audience: &Audience,
    marks: JobMarks<'_>,
) -> Result<(), serde_json::Error> {
    let JobMarks { dedup_nonce, app_generation, counted, trace, sent_by, localized } = marks;
    text(out, r#"{"payload":"#);
    write_payload(out, payload)?;
    field(out, r#","audience":"#, audience)?;
    field(out, r#","dedup_nonce":"#, &dedup_nonce)?;
    if app_generation > 0 {
        field(out, r#","app_generation":"#, &app_generation)?;
    }
    if counted {
        text(out, r#","counted":true"#);
    }
    optional(out, r#","traceparent":"#, &trace)?;
    optional(out, r#","sent_by":"#, &sent_by)?;
    optional(out, r#","localized":"#, &localized)?;
    text(out, "}");
    Ok(())
}

fn write_payload(out: &mut Vec<u8>, payload: &Payload<'_>) -> Result<(), serde_json::Error> {
    let Payload {
        message_id,
        app_id,
        kind,
        notification,
        data,
        hints,
        accepted_at,
        sequence,
        expires_at,
    } = payload;
    text(out, r#"{"message_id":""#);
    text(out, message_id.as_uuid().as_hyphenated().encode_lower(&mut [0; Hyphenated::LENGTH]));
    text(out, r#"","app_id":""#);
    text(out, app_id.as_str());
    field(out, r#"","type":"#, kind)?;
    if let Some(notification) = notification {
        text(out, r#","notification":"#);
        write_notification(out, notification)?;
    }
    optional(out, r#","data":"#, data)?;
    write_hints(out, hints)?;
    field(out, r#","accepted_at":"#, accepted_at)?;
    field(out, r#","sequence":"#, sequence)?;
    field(out, r#","expires_at":"#, expires_at)?;
    text(out, "}");
    Ok(())
}

fn write_notification(
    out: &mut Vec<u8>,
    notification: &Notification<'_>,
) -> Result<(), serde_json::Error> {
    let Notification {
        notification_type,
        title,
        desc,
        icon,
        button_text,
        small_icon,
        small_icon_color,
        open_type,
        open_content,
    } = notification;
    field(out, r#"{"notification_type":"#, notification_type)?;
    optional(out, r#","title":"#, title)?;
    optional(out, r#","desc":"#, desc)?;
    optional(out, r#","icon":"#, icon)?;
    optional(out, r#","button_text":"#, button_text)?;
    optional(out, r#","small_icon":"#, small_icon)?;
    optional(out, r#","small_icon_color":"#, small_icon_color)?;
    optional(out, r#","open_type":"#, open_type)?;
    optional(out, r#","open_content":"#, open_content)?;
    text(out, "}");
    Ok(())
}

fn write_hints(out: &mut Vec<u8>, hints: &Hints<'_>) -> Result<(), serde_json::Error> {
    let Hints { priority, collapse_key, channel_id, category, image, sound, badge } = hints;
    optional(out, r#","priority":"#, priority)?;
    optional(out, r#","collapse_key":"#, collapse_key)?;
    optional(out, r#","channel_id":"#, channel_id)?;
    optional(out, r#","category":"#, category)?;
    optional(out, r#","image":"#, image)?;
    optional(out, r#","sound":"#, sound)?;
    optional(out, r#","badge":"#, badge)
}

fn text(out: &mut Vec<u8>, json: &str) {
    out.extend_from_slice(json.as_bytes());
}

fn field(out: &mut Vec<u8>, name: &str, value: &impl Serialize) -> Result<(), serde_json::Error> {
    text(out, name);
    serde_json::to_writer(out, value)
}

fn optional(
    out: &mut Vec<u8>,
    name: &str,
    value: &Option<impl Serialize>,
) -> Result<(), serde_json::Error> {
    value.as_ref().map_or(Ok(()), |value| field(out, name, value))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize as _;

    use super::*;
    use crate::{
        ids::MessageId, localized::LocalText, message::NamedUsers, targeting::Targeting,
        text::Text, time::UnixMillis,
    };

    fn derived(payload: &Payload<'_>, audience: &Audience, marks: JobMarks<'_>) -> String {
        #[derive(Serialize)]
        struct Derived<'a> {
            payload: &'a Payload<'a>,
            audience: &'a Audience,
            dedup_nonce: u64,
            #[serde(skip_serializing_if = "Option::is_none")]
            app_generation: Option<u64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            counted: Option<bool>,
            #[serde(skip_serializing_if = "Option::is_none")]
            traceparent: Option<TraceParent>,
            #[serde(skip_serializing_if = "Option::is_none")]
            sent_by: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            localized: Option<&'a Localized>,
        }
        let app_generation = Some(marks.app_generation).filter(|generation| *generation > 0);
        let counted = Some(marks.counted).filter(|counted| *counted);
        let dedup_nonce = marks.dedup_nonce;
        let (traceparent, sent_by, localized) = (marks.trace, marks.sent_by, marks.localized);
        let job = Derived {
            payload,
            audience,
            dedup_nonce,
            app_generation,
            counted,
            traceparent,
            sent_by,
            localized,
        };
        serde_json::to_string(&job).unwrap()
    }

    #[test]
    fn a_job_is_written_as_serde_would_write_it() {
        let every = r#"{"notification_type":3,"title":"a\u00e9\/","desc":"b\n","icon":"c",
            "button_text":"d","small_icon":"e","small_icon_color":"f","open_type":2,
            "open_content":"g"}"#;
        let notifications: [Option<Notification<'_>>; 3] = [
            None,
            Some(Notification { notification_type: 1, ..Notification::default() }),
            Some(serde_json::from_str(every).unwrap()),
        ];
        let datas: [Option<BTreeMap<Text<'_>, Text<'_>>>; 2] =
            [None, Some([("k\"".into(), "\u{1}".into())].into())];
        let audiences = [
            Audience::All,
            Audience::Targeting(Targeting::all_devices()),
            Audience::Clients(vec!["a:1".parse().unwrap(), "b".parse().unwrap()]),
            Audience::Users(NamedUsers {
                clients: vec!["a:1".parse().unwrap()],
                users: vec![("u@x".parse().unwrap(), 1)],
            }),
        ];
        let all_hints = r#"{"priority":"high","collapse_key":"a\"","channel_id":"b","category":"c",
            "image":"d","sound":"e","badge":0}"#;
        let hints = [Hints::default(), serde_json::from_str(all_hints).unwrap()];
        let german = Localized([("de".into(), LocalText::default())].into());
        let trace = TraceParent { trace_id: [0xab; 16], span_id: [1; 8], sampled: true };
        let marks = [
            (0, false, None, None),
            (1, true, Some(trace), None),
            (u64::MAX, true, None, Some("c\"i")),
        ];
        for (notification, data) in
            notifications.iter().flat_map(|n| datas.iter().map(move |d| (n, d)))
        {
            for (audience, hints) in
                audiences.iter().flat_map(|a| hints.iter().map(move |h| (a, h)))
            {
                let payload = Payload {
                    message_id: MessageId::issue_named(&"a.B".parse().unwrap()),
                    app_id: "a.B".parse().unwrap(),
                    kind: 2,
                    notification: notification.clone(),
                    data: data.clone(),
                    hints: hints.clone(),
                    accepted_at: UnixMillis(1_700_000_000_000),
                    sequence: 1_700_000_000_000_001,
                    expires_at: UnixMillis(u64::MAX),
                };
                for (app_generation, counted, trace, sent_by) in marks {
                    let dedup_nonce = u64::MAX;
                    let marks = JobMarks {
                        dedup_nonce,
                        app_generation,
                        counted,
                        trace,
                        sent_by,
                        localized: sent_by.map(|_| &german),
                    };
                    let written = encode_job(&payload, audience, marks).unwrap();
                    let written = String::from_utf8(written).unwrap();
                    assert_eq!(written, derived(&payload, audience, marks));
                    let job = written.strip_prefix(r#"{"payload":"#).unwrap();
                    let mut read = serde_json::Deserializer::from_str(job);
                    assert_eq!(Payload::deserialize(&mut read).unwrap(), payload);
                }
            }
        }
    }
}
