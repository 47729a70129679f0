//! Someone with a browser: requests for pages as browsers make them.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::support::Console;

/// How a browser marks what a page of the same site sends.
pub(crate) const SAME: (&str, &str) = ("sec-fetch-site", "same-origin");

/// The answer to a request for a page.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) text: String,
}

impl Page {
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(each, _)| each == name);
        found.map_or("", |(_, value)| value)
    }
}

/// Someone with a browser, and perhaps a session.
pub(crate) struct Visitor<'a> {
    console: &'a Console,
    pub(crate) cookie: String,
}

impl<'a> Visitor<'a> {
    pub(crate) fn stranger(console: &'a Console) -> Self {
        Self { console, cookie: String::new() }
    }

    pub(crate) fn with_cookie(console: &'a Console, cookie: &str) -> Self {
        Self { console, cookie: cookie.to_owned() }
    }

    /// The name of the cookie of a session without TLS.
    pub(crate) fn cookie_name(console: &Console) -> String {
        let port = console.address.rsplit(':').next().unwrap();
        format!("push-console-{port}")
    }

    pub(crate) async fn with_key(console: &'a Console, key: &str) -> Self {
        let stranger = Self::stranger(console);
        let answer = stranger.post("/sign-in", &[SAME], &[("key", key)]).await;
        assert_eq!((answer.status, answer.header("location")), (303, "/"), "{answer:?}");
        let cookie = answer.header("set-cookie");
        for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        Self { console, cookie: cookie.split(';').next().unwrap().to_owned() }
    }

    pub(crate) async fn get(&self, path: &str) -> Page {
        self.ask("GET", path, &[], "").await
    }

    pub(crate) async fn post(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        form: &[(&str, &str)],
    ) -> Page {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let typed = [headers, &[("content-type", "application/x-www-form-urlencoded")]].concat();
        self.ask("POST", path, &typed, &body).await
    }

    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Page {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(Duration::from_secs(60)))
            .build()
            .into();
        let uri = format!("http://{}{path}", self.console.address);
        let mut request = ureq::http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !self.cookie.is_empty() {
            request = request.header("cookie", &self.cookie);
        }
        let request = request.body(body.to_owned()).unwrap();
        tokio::task::spawn_blocking(move || {
            let mut answer = agent.run(request).unwrap();
            let text = answer.body_mut().read_to_string().unwrap();
            let headers = answer.headers().iter();
            let headers =
                headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
            Page { status: answer.status().as_u16(), headers: headers.collect(), text }
        })
        .await
        .unwrap()
    }
}

/// Sends a request as it is written here, and returns the status and the head of the answer.
pub(crate) async fn exchange(console: &Console, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(&console.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_lowercase())
}
