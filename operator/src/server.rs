//! The URL of an HTTP server: an `ingest`, the proxy in front of it, or an operations listener.

use std::{fmt, net::IpAddr};

use ureq::http::Uri;

/// The URL of a server, without the path of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    url: String,
    /// True if connections leave this machine unencrypted.
    unencrypted: bool,
}

impl Server {
    /// Reads `http://host:port` or `https://host`, with or without a path that all requests share.
    ///
    /// # Errors
    /// If it is not of that form.
    pub fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "must be http://host[:port] or https://host[:port]";
        let uri: Uri = text.parse().map_err(|_| FORM)?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(FORM.to_owned());
        };
        if authority.as_str().contains('@') {
            return Err(
                "must have no user and no password: the app's secret is all that is needed".into(),
            );
        }
        if !matches!(scheme, "http" | "https") || authority.host().is_empty() {
            return Err(FORM.to_owned());
        }
        if uri.query().is_some() {
            return Err(format!("{FORM}, without a query"));
        }
        let unencrypted = scheme == "http" && !is_this_machine(authority.host());
        Ok(Self { url: text.trim_end_matches('/').to_owned(), unencrypted })
    }

    /// Returns true if requests to it can be read on their way.
    pub fn is_unencrypted(&self) -> bool {
        self.unencrypted
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

fn is_this_machine(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_another_machine_is_unencrypted_unless_it_has_tls() {
        let unencrypted = |url: &str| Server::parse(url).unwrap().is_unencrypted();
        for safe in ["http://127.0.0.1:8080", "http://[::1]:8080/", "http://localhost", "https://h"]
        {
            assert!(!unencrypted(safe), "{safe}");
        }
        for clear in ["http://push.example", "http://10.0.0.1:8080", "http://localhost.example"] {
            assert!(unencrypted(clear), "{clear}");
        }
    }

    #[test]
    fn what_is_no_server_is_refused_and_a_password_is_not_shown() {
        for wrong in ["", "h:8080", "/path", "ftp://h", "http://u:hunter2@h", "http://h?a=hunter2"]
        {
            let error = Server::parse(wrong).unwrap_err();
            assert!(error.starts_with("must ") && !error.contains("hunter2"), "{wrong}: {error}");
        }
        assert_eq!(Server::parse("http://h/push/").unwrap().to_string(), "http://h/push");
    }
}
