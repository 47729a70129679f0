//! The clock of an `ingest`, from the `Date` of an answer. It has whole seconds, so only what they and
//! the round trip do not explain counts as a difference.

use std::time::{Duration, SystemTime};

use push_model::time::UnixMillis;
use push_store::Finding;

use super::http::client;
use crate::{profile::default_server, server::Server};

const SUBJECT: &str = "ingest clock";

/// The time limit for an answer of `ingest`.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The allowed difference: the default of the workers' `--clock-allowance`.
const ALLOWANCE: Duration = Duration::from_secs(1);

/// The resolution of `Date`.
const SECOND: Duration = Duration::from_secs(1);

/// Asks the `ingest` at this URL. Without one, `is_embedded` says that the stores are those of a service on this
/// machine, which is looked for at its default address.
pub(in crate::doctor) async fn of_ingest(server: Option<Server>, is_embedded: bool) -> Finding {
    let is_named = server.is_some();
    let server = match server {
        None if is_embedded => default_server().ok(),
        named => named,
    };
    let Some(server) = server else {
        return Finding::skipped(SUBJECT, "name where ingest is reached with --server");
    };
    let url = server.to_string();
    let asked = UnixMillis::now();
    let date = tokio::task::spawn_blocking(move || date(&server)).await;
    let answered = UnixMillis::now();
    match date.unwrap_or_else(|error| Err(error.to_string())) {
        Ok(theirs) => judge(theirs, asked, answered),
        Err(error) if !is_named => Finding::warning(
            "service",
            format!("nothing answers at {url}: {error}"),
            "start it with `pushctl standalone`, or name where it is reached with --server",
        ),
        Err(error) => Finding::error(
            SUBJECT,
            format!("{url} gives no time: {error}"),
            "check that --server is the URL of an ingest, and that it runs",
        ),
    }
}

fn date(server: &Server) -> Result<UnixMillis, String> {
    // Any path has an answer with a date.
    let answer = client(TIMEOUT).get(format!("{server}/openapi.json")).call();
    let answer = answer.map_err(|error| error.to_string())?;
    let date = answer.headers().get("date").and_then(|date| date.to_str().ok());
    let date = date.ok_or("its answer has no Date")?;
    let date = httpdate::parse_http_date(date).map_err(|_| "its Date cannot be read")?;
    let since = date.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(UnixMillis(u64::try_from(since.as_millis()).unwrap_or_default()))
}

/// Compares `theirs`, the start of their second, with our time before (`asked`) and after (`answered`).
fn judge(theirs: UnixMillis, asked: UnixMillis, answered: UnixMillis) -> Finding {
    let ahead = theirs.since(answered);
    let behind = asked.since(theirs.plus(SECOND));
    let (differs, which) = if ahead > behind { (ahead, "ahead of") } else { (behind, "behind") };
    if differs < ALLOWANCE {
        return Finding::ok(SUBJECT, "this machine's, within the second that it tells");
    }
    let detail = format!(
        "{} ms or more {which} this machine's: broadcasts may miss new devices",
        differs.as_millis()
    );
    Finding::warning(SUBJECT, detail, "synchronise both clocks (NTP)")
}

#[cfg(test)]
mod tests {
    use push_store::Level;

    use super::*;

    #[test]
    fn a_clock_differs_by_what_its_second_and_the_round_trip_do_not_explain() {
        let of = |theirs| judge(UnixMillis(theirs), UnixMillis(50_400), UnixMillis(50_500));
        for near in [49_000, 50_000, 51_000] {
            assert_eq!(of(near).level, Level::Ok, "{near}");
        }
        assert_eq!((of(52_000).level, of(48_000).level), (Level::Warning, Level::Warning));
        assert!(of(53_000).detail.starts_with("2500 ms or more ahead of"), "{}", of(53_000).detail);
        assert!(of(46_000).detail.starts_with("3400 ms or more behind"), "{}", of(46_000).detail);
    }
}
