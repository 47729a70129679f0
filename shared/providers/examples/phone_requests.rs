//! Writes the requests to FCM and APNs for some pushes, for programs that check them: `tests/run providers`.
//!
//! Reads `cases.json` in the folder that it is given: the credentials of both providers, the time, and pushes,
//! each with a payload, device addresses and a time to live. Writes `requests.json` beside it.

use std::{error::Error, fs, path::Path};

use push_model::{ids::MessageId, time::UnixMillis};
use push_providers::{
    Authorization, Bearer, Delivery, Device, Provider, apns::Apns, content::Content,
    exchange::Request, fcm::Fcm,
};
use ring::rand::SystemRandom;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

#[derive(Deserialize)]
struct Cases<'a> {
    /// Unix milliseconds.
    now: u64,
    #[serde(borrow)]
    fcm: &'a RawValue,
    #[serde(borrow)]
    apns: &'a RawValue,
    #[serde(borrow)]
    pushes: Vec<Push<'a>>,
}

#[derive(Deserialize)]
struct Push<'a> {
    name: String,
    #[serde(borrow)]
    payload: &'a RawValue,
    fcm_token: String,
    apns_token: String,
    /// Seconds.
    time_to_live: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("needs a folder")?;
    let folder = Path::new(&folder);
    let cases = fs::read(folder.join("cases.json"))?;
    let cases: Cases<'_> = serde_json::from_slice(&cases)?;
    let requests = json!({
        "fcm": requests::<Fcm>(cases.fcm, &cases, |push| &push.fcm_token)?,
        "apns": requests::<Apns>(cases.apns, &cases, |push| &push.apns_token)?,
    });
    fs::write(folder.join("requests.json"), serde_json::to_vec_pretty(&requests)?)?;
    Ok(())
}

/// Returns the requests for authorization, for a test of the account, and for each push by its name.
fn requests<P: Provider>(
    credential: &RawValue,
    cases: &Cases<'_>,
    token_of: impl for<'p> Fn(&'p Push<'_>) -> &'p str,
) -> Result<Value, Box<dyn Error>> {
    let (now, random) = (UnixMillis(cases.now), SystemRandom::new());
    let account = P::account(credential.get().as_bytes(), &random)?;
    let (exchange, bearer) = match P::authorize(&account, "", now, &random)? {
        Authorization::Made(bearer) => (Value::Null, bearer),
        Authorization::Exchange(request) => (as_json(&request)?, usual_bearer()),
    };
    let mut pushes = serde_json::Map::new();
    for push in &cases.pushes {
        let content = Content::read(push.payload.get().as_bytes())?;
        let message = P::message(&content, Some(&account))?;
        let token = P::token(&P::stored(token_of(push), &random)?)?;
        let message_id: MessageId = content.payload.message_id;
        let delivery = Delivery {
            message_id: &message_id,
            now,
            expires_at: now.plus_seconds(push.time_to_live),
            now_or_never: push.time_to_live == 0,
            random: &random,
        };
        let device = Device { client_id: "c1", token: &token };
        let request = P::request(&account, &bearer, &message, &delivery, &[device])
            .map_err(|verdict| format!("{}: {verdict:?}", push.name))?;
        pushes.insert(push.name.clone(), as_json(&request)?);
    }
    let probe = P::probe(&account, &bearer, now).ok_or("no probe")?;
    Ok(json!({ "exchange": exchange, "probe": as_json(&probe)?, "pushes": pushes }))
}

/// Stands for an access token that was exchanged.
fn usual_bearer() -> Bearer {
    let never = UnixMillis::MAX;
    Bearer { value: "Bearer ya29.example".into(), renew_at: never, expires_at: never }
}

fn as_json(request: &Request) -> Result<Value, Box<dyn Error>> {
    let mut headers = serde_json::Map::new();
    for (name, value) in &request.headers {
        headers.insert(name.to_string(), value.to_str()?.into());
    }
    let body = std::str::from_utf8(&request.body)?;
    Ok(json!({
        "to": format!("{:?}", request.to),
        "method": request.method.as_str(),
        "path": request.path,
        "headers": headers,
        "body": body,
    }))
}
