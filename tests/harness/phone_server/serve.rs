//! Answering requests, with HTTP/2 as a library speaks it.

use std::{future::poll_fn, sync::Arc};

use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};
use http::{HeaderMap, Request, Response, header::AUTHORIZATION};
use serde_json::{Map, Value, json};
use tokio::{io::DuplexStream, task::JoinSet};

use super::{
    Shared,
    reply::{Kind, Reply},
};

/// Serves a connection until it ends.
pub(super) async fn serve(io: DuplexStream, shared: &Arc<Shared>) -> Result<(), h2::Error> {
    let mut connection = h2::server::handshake(io).await?;
    let mut requests = JoinSet::new();
    loop {
        tokio::select! {
            request = connection.accept() => match request {
                Some(request) => {
                    let (request, respond) = request?;
                    requests.spawn(answer(request, respond, shared.clone()));
                }
                None => return Ok(()),
            },
            Some(_) = requests.join_next() => {}
        }
    }
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    shared: Arc<Shared>,
) -> Result<(), h2::Error> {
    let (parts, mut incoming) = request.into_parts();
    let mut body = Vec::new();
    while let Some(piece) = incoming.data().await {
        let piece = piece?;
        incoming.flow_control().release_capacity(piece.len())?;
        body.extend_from_slice(&piece);
    }
    let devices = shared.face.devices(parts.uri.path(), &body);
    let body = Bytes::from(body);
    let (number, replies) = note(&shared, &parts.headers, &body, &devices);
    let after = replies.iter().map(|reply| reply.after).max().unwrap_or_default();
    if !after.is_zero() {
        tokio::time::sleep(after).await;
    }
    let decisive =
        replies.iter().find(|reply| !matches!(reply.kind, Kind::Taken | Kind::Outcome(_)));
    let retry_after = replies.iter().find_map(|reply| reply.retry_after);
    let (status, text) = match decisive.map(|reply| &reply.kind) {
        Some(Kind::Silence) => {
            poll_fn(|cx| respond.poll_reset(cx)).await?;
            return Ok(());
        }
        Some(Kind::Reset(code)) => {
            respond.send_reset((*code).into());
            return Ok(());
        }
        Some(Kind::Answer { status, body }) => (*status, body.clone()),
        _ => taken(&shared, number, &devices, &replies, &body),
    };
    let mut response = Response::builder().status(status);
    if let Some(seconds) = retry_after {
        response = response.header("retry-after", seconds);
    }
    let response = response.body(()).expect("a response");
    let mut stream = respond.send_response(response, text.is_empty())?;
    if !text.is_empty() {
        stream.send_data(text.into(), true)?;
    }
    Ok(())
}

/// Notes a request, and returns its number and what each of its devices gets. A request without devices
/// counts as one for the device with no name.
pub(super) fn note(
    shared: &Shared,
    headers: &HeaderMap,
    body: &Bytes,
    devices: &[String],
) -> (u64, Vec<Reply>) {
    let script = shared.script();
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let mut record = shared.record();
    record.requests += 1;
    record.body = body.to_vec();
    record.headers = headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    if let Some(authorization) = headers.get(AUTHORIZATION) {
        record.authorizations.insert(text(authorization));
    }
    let number = record.requests;
    let unnamed = [String::new()];
    let devices = if devices.is_empty() { &unnamed[..] } else { devices };
    let mut reply = |device: &String| {
        let asked = record.asked.entry(device.clone()).or_default();
        *asked += 1;
        script(device, *asked - 1)
    };
    (number, devices.iter().map(&mut reply).collect())
}

/// Notes which devices' messages were taken, and returns status and body of the answer.
pub(super) fn taken(
    shared: &Shared,
    number: u64,
    devices: &[String],
    replies: &[Reply],
    body: &Bytes,
) -> (u16, String) {
    let mut outcomes = Map::new();
    let mut record = shared.record();
    for (device, reply) in devices.iter().zip(replies) {
        match &reply.kind {
            Kind::Outcome(outcome) => drop(outcomes.insert(device.clone(), outcome.clone())),
            _ => {
                *record.taken.entry(device.clone()).or_default() += 1;
                shared.report(device, body);
            }
        }
    }
    if outcomes.is_empty() {
        return shared.face.taken(number);
    }
    (200, json!({"devices": Value::Object(outcomes)}).to_string())
}
