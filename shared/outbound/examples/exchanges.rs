//! Sends requests to a server, over one connection at a time, and writes what became of them:
//! `tests/providers/hostile_http2.py` runs it.
//!
//! Usage: exchanges URL. Each line of standard input, `REQUESTS MILLISECONDS`, sends so many requests
//! together, which have so much time. With `again` behind it, those that were certainly not processed are
//! sent again. The answer is a line for each outcome, after its number, and an empty line.

use std::{
    collections::BTreeMap,
    env,
    io::{self, BufRead as _, Write as _},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use push_outbound::{
    Client, Exchange, Limits, NotProcessed, Origin, Outbound, OutboundSettings, Owner, PoolKey,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

/// The bytes of a request's body.
const BODY: usize = 1024;

/// The pause before a request that the server did not begin with is sent again.
const PAUSE: Duration = Duration::from_millis(50);

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = env::args().nth(1).ok_or("the URL is missing")?;
    let limits = Limits { connections_per_origin: 1, ..Limits::default() };
    let settings = OutboundSettings { limits, ..OutboundSettings::new(Arc::new(|| 0.0)) };
    let outbound = Outbound::new(settings)?;
    let client = outbound.origin(Origin::parse(&url, Owner::Operator)?, PoolKey::default());
    for line in io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split_whitespace();
        let requests: usize = words.next().unwrap_or_default().parse()?;
        let time = Duration::from_millis(words.next().unwrap_or_default().parse()?);
        let insists = words.next() == Some("again");
        let deadline = Instant::now() + time;
        let mut sent = JoinSet::new();
        for _ in 0..requests {
            sent.spawn(send(client.clone(), deadline, insists));
        }
        let mut outcomes = BTreeMap::<String, usize>::new();
        for outcome in sent.join_all().await {
            *outcomes.entry(outcome).or_default() += 1;
        }
        let mut out = io::stdout().lock();
        for (outcome, number) in outcomes {
            writeln!(out, "{number} {outcome}")?;
        }
        writeln!(out)?;
        out.flush()?;
    }
    outbound.close().await;
    Ok(())
}

async fn send(client: Client, deadline: Instant, insists: bool) -> String {
    loop {
        let request = Request::post("/3/device/1").body(Bytes::from_static(&[b'b'; BODY]));
        let Ok(request) = request else { return "no request".to_owned() };
        match client.send(request, deadline).await {
            Exchange::NotProcessed(why) if insists && Instant::now() < deadline => match why {
                NotProcessed::Unreachable { again_in, .. } => sleep(again_in.max(PAUSE)).await,
                _ => sleep(PAUSE).await,
            },
            Exchange::NotProcessed(NotProcessed::Unreachable { error, .. }) => {
                return format!("not processed: Unreachable {:?} {:?}", error.step, error.why);
            }
            Exchange::NotProcessed(why) => return format!("not processed: {why:?}"),
            Exchange::Unanswered(why) => return format!("unanswered: {why:?}"),
            Exchange::Answered(answer) => {
                let extent = if answer.whole { "whole" } else { "cut" };
                return format!("answered: {} {extent}", answer.status.as_u16());
            }
        }
    }
}
