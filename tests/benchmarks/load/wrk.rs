//! Load over many connections: runs wrk with a script of the requests to send.

use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use tempfile::NamedTempFile;
use tokio::{process::Command, time::timeout};

use super::Producer;

/// Deadline for wrk to report after its load.
const GRACE: Duration = Duration::from_secs(30);

/// A placeholder in a request, which the script replaces by a number of as many digits, another one
/// in each request.
pub(crate) const NUMBER: &str = "################";

const JSON: &str = "application/json";

/// One request of a load.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    /// It may have one [`NUMBER`].
    pub(crate) path: String,
    pub(crate) body: String,
}

impl Producer {
    /// Pushes as fast as `connections` can, and returns pushes a second.
    pub(crate) async fn wrk(
        &self,
        connections: usize,
        time: Duration,
        body: &Value,
    ) -> anyhow::Result<f64> {
        self.wrk_each(connections, time, std::slice::from_ref(body)).await
    }

    /// The same, with each of these bodies in turn.
    pub(crate) async fn wrk_each(
        &self,
        connections: usize,
        time: Duration,
        bodies: &[Value],
    ) -> anyhow::Result<f64> {
        let path = self.push_path();
        let post =
            |body: &Value| Request { method: "POST", path: path.clone(), body: body.to_string() };
        let requests: Vec<Request> = bodies.iter().map(post).collect();
        self.wrk_requests(connections, time, &requests).await
    }

    /// Sends batch requests with these lines as fast as `connections` can, and returns requests a
    /// second.
    pub(crate) async fn wrk_lines(
        &self,
        connections: usize,
        time: Duration,
        lines: &str,
    ) -> anyhow::Result<f64> {
        let path = format!("{}/batch", self.push_path());
        let request = Request { method: "POST", path, body: lines.to_owned() };
        self.run_wrk(connections, time, "application/x-ndjson", &[request]).await
    }

    /// Sends these requests in turn as fast as `connections` can, and returns requests a second.
    pub(crate) async fn wrk_requests(
        &self,
        connections: usize,
        time: Duration,
        requests: &[Request],
    ) -> anyhow::Result<f64> {
        self.run_wrk(connections, time, JSON, requests).await
    }

    async fn run_wrk(
        &self,
        connections: usize,
        time: Duration,
        media_type: &str,
        requests: &[Request],
    ) -> anyhow::Result<f64> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // One thread of wrk keeps more than three cores of the service busy.
        let threads = (cores / 4).clamp(1, connections);
        let file = NamedTempFile::with_suffix(".lua")?;
        std::fs::write(file.path(), script(&self.secret, media_type, requests, threads))?;
        let output = Command::new("wrk")
            .args(["-t", &threads.to_string(), "-c", &connections.to_string()])
            .args(["-d", &format!("{}s", time.as_secs()), "--timeout", "10s"])
            .arg("-s")
            .arg(file.path())
            .arg(format!("http://{}", self.address))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = timeout(time + GRACE, output).await?.context("wrk")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find_map(|line| line.strip_prefix("RESULT "));
        let numbers: Vec<f64> = line
            .with_context(|| format!("wrk said nothing to use: {text}"))?
            .split(' ')
            .map(str::parse)
            .collect::<Result<_, _>>()?;
        let [requests, micros, errors] = numbers[..] else { bail!("wrk said {line:?}") };
        ensure!(errors == 0.0, "{errors} of {requests} requests failed");
        Ok(requests / (micros / 1e6))
    }
}

fn script(secret: &str, media_type: &str, requests: &[Request], threads: usize) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let requests: Vec<String> = requests
        .iter()
        .map(|Request { method, path, body }| {
            format!("{{ {}, {}, {} }}", quoted(method), quoted(path), quoted(body))
        })
        .collect();
    let (requests, digits) = (requests.join(",\n"), NUMBER.len());
    // Each request is formatted once, so that one costs wrk as much as many. A request with a
    // number is concatenated from the part before it, the number, and the part behind.
    format!(
        "local requests = {{ {requests} }}\n\
         local before, behind, sent, threads = {{}}, {{}}, 0, 0\n\
         function setup(thread)\n\
           thread:set('place', threads)\n\
           threads = threads + 1\n\
         end\n\
         function init()\n\
           wrk.headers['Content-Type'] = '{media_type}'\n\
           wrk.headers['Authorization'] = '{secret}'\n\
           for i, request in ipairs(requests) do\n\
             local text = wrk.format(request[1], request[2], nil, request[3])\n\
             local from, to = string.find(text, '{NUMBER}', 1, true)\n\
             before[i] = from and string.sub(text, 1, from - 1) or text\n\
             behind[i] = to and string.sub(text, to + 1)\n\
           end\n\
         end\n\
         function request()\n\
           local i = sent % #before + 1\n\
           sent = sent + 1\n\
           if not behind[i] then return before[i] end\n\
           return before[i] .. string.format('%0{digits}d', sent * {threads} + place) .. behind[i]\n\
         end\n\
         function done(summary, latency, requests)\n\
           local e = summary.errors\n\
           print(string.format('RESULT %d %d %d', summary.requests, summary.duration,\n\
             e.connect + e.read + e.write + e.status + e.timeout))\n\
         end\n"
    )
}
