//! Prometheus, as an operator runs it, with a scrape interval so short that a test need not wait.

use std::{fmt::Write as _, path::Path, process::Command};

use serde_json::Value;

use super::{Kind, Server, ServerError, program, system};
use crate::{
    ports::{Port, free_port},
    service::request,
};

/// A Prometheus server.
pub type Prometheus = Server<PrometheusKind>;

/// The kind of server that Prometheus is.
#[derive(Debug)]
pub struct PrometheusKind {
    port: Port,
    settings: String,
}

impl Server<PrometheusKind> {
    /// Starts one that scrapes these addresses every second, each as a job with this name.
    pub async fn start(targets: &[(&str, &str)]) -> Result<Self, ServerError> {
        let port = free_port().map_err(system::<PrometheusKind>)?;
        let mut settings =
            "global: { scrape_interval: 1s, scrape_timeout: 1s }\nscrape_configs:\n".to_owned();
        for (number, (job, address)) in targets.iter().enumerate() {
            // The names of two configurations must differ, and two targets may be of one job.
            let _ = writeln!(
                settings,
                "  - job_name: '{number}'\n    static_configs: [{{ targets: ['{address}'], \
                 labels: {{ job: '{job}' }} }}]"
            );
        }
        Self::start_kind(PrometheusKind { port, settings }).await
    }

    /// Returns what an expression gives now: one object for each series, with `metric` and `value`.
    ///
    /// # Errors
    /// Prometheus's error about an expression that it refuses.
    pub async fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let url = format!("{}/api/v1/query", self.url());
        let headers = [("content-type", "application/x-www-form-urlencoded")];
        let body = format!("query={}", percent_encoded(expression));
        let (status, text) =
            request("POST", &url, &headers, &body).await.map_err(|error| error.to_string())?;
        let answer: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        match answer["data"]["result"].as_array() {
            Some(series) if status == 200 => Ok(series.clone()),
            _ => Err(text),
        }
    }

    /// The only value of an expression, if it gives one series with a number.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    pub async fn value(&self, expression: &str) -> Result<Option<f64>, String> {
        let series = self.query(expression).await?;
        let [only] = series.as_slice() else { return Ok(None) };
        Ok(only["value"][1].as_str().and_then(|text| text.parse().ok()))
    }
}

/// For the body of a form: every byte that could mean something there is written as its number.
fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

impl Kind for PrometheusKind {
    const NAME: &'static str = "Prometheus";

    fn command(&self, folder: &Path) -> Result<Command, ServerError> {
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, &self.settings).map_err(system::<Self>)?;
        let mut command = program("prometheus")?;
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={}", self.port.address()));
        Ok(command)
    }

    async fn answers(&self) -> Result<(), String> {
        let answer = request("GET", &format!("{}/-/ready", self.url()), &[], "").await;
        match answer {
            Ok((200, _)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    fn url(&self) -> String {
        format!("http://{}", self.port.address())
    }

    fn tls_url(&self) -> Option<String> {
        None
    }
}
