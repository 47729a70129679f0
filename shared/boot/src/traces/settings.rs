//! The settings about traces.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use percent_encoding::percent_decode_str;
use push_tls::client::ClientTls;
use url::{Host, Url};

use super::{
    collector::{Collector, Endpoint},
    headers::headers,
};
use crate::{
    settings,
    settings::{ConfigErrors, text},
    tls::{self, ClientFlags},
};

/// The path at which a collector takes traces, by the OTLP specification.
const TRACES_PATH: &str = "/v1/traces";

settings! {
    /// The flags about traces, before they are checked.
    pub struct TraceArgs, "Log, metrics and traces" => TraceValues {
        /// Send traces to the OpenTelemetry collector that takes OTLP over HTTP at this address, like
        /// `http://collector:4318`; with TLS `https://…`, with a login `http://user:password@…`. There are
        /// no traces without it
        otlp_url or otlp_url_file: Option<Address> = ["URL"] address;
        /// Send these headers to the collector, such as a token: `name=value`, separated by commas
        otlp_headers or otlp_headers_file: Option<HeaderMap> = ["HEADERS"] headers;
        /// Trust the authorities of this PEM file for `https://`, instead of the machine's
        otlp_ca: Option<String> = ["FILE"] text;
        /// Show the certificate of this PEM file to the collector, for `https://`
        otlp_cert: Option<String> = ["FILE"] text;
        /// Use the private key of this PEM file with --otlp-cert
        otlp_key: Option<String> = ["FILE"] text;
    }
}

/// The checked settings of traces.
#[derive(Debug)]
pub struct TraceSettings {
    pub(super) collector: Collector,
    /// The name that the programs of one installation share.
    pub(super) namespace: String,
}

impl TraceArgs {
    /// Checks the flags; problems are added to `errors`. `Some(None)`: no traces. `namespace` is that
    /// of the engines.
    pub fn check(
        &self,
        namespace: Option<&str>,
        errors: &mut ConfigErrors,
    ) -> Option<Option<TraceSettings>> {
        let given = self.values(errors);
        let flags = ClientFlags {
            authorities: ("--otlp-ca", self.otlp_ca.as_ref()),
            certificate: ("--otlp-cert", self.otlp_cert.as_ref()),
            key: ("--otlp-key", self.otlp_key.as_ref()),
            schemes: "https://",
        };
        let url = given.as_ref().map(|given| given.otlp_url.as_ref());
        let encrypted = url.map(|url| url.is_some_and(|url| url.encrypted));
        let tls = tls::client(flags, encrypted, errors);
        let TraceValues { otlp_url: url, otlp_headers: headers, .. } = given?;
        if headers.is_some() && url.is_none() {
            errors.note("--otlp-headers (PUSH_OTLP_HEADERS) is of use only with --otlp-url");
        }
        let (tls, headers) = (tls?, headers.unwrap_or_default());
        let namespace = namespace.unwrap_or_default().to_owned();
        let collector = url.map(|url| Collector::new(url.endpoint(tls, headers)));
        Some(collector.map(|collector| TraceSettings { collector, namespace }))
    }
}

/// A URL of a collector.
struct Address {
    encrypted: bool,
    host: String,
    port: u16,
    path_and_query: String,
    login: Option<HeaderValue>,
}

impl Address {
    fn endpoint(self, tls: Option<ClientTls>, mut headers: HeaderMap) -> Endpoint {
        let Self { host, port, path_and_query, login, .. } = self;
        if let Some(login) = login {
            headers.entry(AUTHORIZATION).or_insert(login);
        }
        Endpoint { host, port, tls, path_and_query, headers }
    }
}

fn address(text: &str) -> Result<Address, String> {
    let wrong = || "must be http://[user:password@]host[:port] or https://…".to_owned();
    let url = Url::parse(text).map_err(|_| wrong())?;
    let encrypted = match url.scheme() {
        "http" => false,
        "https" => true,
        _ => return Err(wrong()),
    };
    let host = match url.host() {
        Some(Host::Domain(name)) => name.to_owned(),
        Some(Host::Ipv4(address)) => address.to_string(),
        Some(Host::Ipv6(address)) => address.to_string(),
        None => return Err(wrong()),
    };
    if url.fragment().is_some() {
        return Err(wrong());
    }
    let path = if url.path() == "/" { TRACES_PATH } else { url.path() };
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    Ok(Address {
        encrypted,
        host,
        port: url.port_or_known_default().ok_or_else(wrong)?,
        path_and_query: format!("{path}{query}"),
        login: login(&url).map_err(|()| wrong())?,
    })
}

/// The login of a URL, as HTTP sends it (RFC 7617).
fn login(url: &Url) -> Result<Option<HeaderValue>, ()> {
    let password = url.password().unwrap_or_default();
    if url.username().is_empty() && password.is_empty() {
        return Ok(None);
    }
    let mut login: Vec<u8> = percent_decode_str(url.username()).collect();
    login.push(b':');
    login.extend(percent_decode_str(password));
    let mut value =
        HeaderValue::try_from(format!("Basic {}", STANDARD.encode(login))).map_err(drop)?;
    value.set_sensitive(true);
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        traces: TraceArgs,
    }

    fn check(flags: &[&str]) -> Result<Option<TraceSettings>, String> {
        let cli = Cli::try_parse_from(["program"].iter().chain(flags)).unwrap();
        let mut errors = ConfigErrors::default();
        let settings = cli.traces.check(Some("push"), &mut errors);
        errors.finish(settings).map_err(|errors| errors.to_string())
    }

    #[test]
    fn there_are_no_traces_unless_a_collector_is_set() {
        assert!(check(&[]).unwrap().is_none());
        let settings = check(&["--otlp-url", "http://collector:4318"]).unwrap().unwrap();
        assert_eq!(settings.collector.to_string(), "http://collector:4318");
    }

    #[test]
    fn a_url_without_a_path_means_the_path_of_otlp() {
        let of = |text| address(text).map(|url| (url.port, url.path_and_query)).unwrap();
        assert_eq!(of("http://c:4318"), (4318, "/v1/traces".to_owned()));
        assert_eq!(of("https://c/"), (443, "/v1/traces".to_owned()));
        assert_eq!(of("http://[::1]/otlp/traces?key=a"), (80, "/otlp/traces?key=a".to_owned()));
    }

    #[test]
    fn neither_the_login_nor_a_header_is_shown() {
        let flags =
            ["--otlp-url", "http://me:hunter2@c:4318/hunter2", "--otlp-headers", "x=hunter2"];
        let settings = check(&flags).unwrap().unwrap();
        let shown = format!("{settings:?} {}", settings.collector);
        assert!(shown.contains("http://c:4318") && !shown.contains("hunter2"), "{shown}");
        let flags = ["--otlp-url", "ftp://me:hunter2@c", "--otlp-headers", "hunter2"];
        let error = check(&flags).unwrap_err();
        assert!(error.contains("PUSH_OTLP_URL") && error.contains("PUSH_OTLP_HEADERS"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn a_login_of_the_url_is_sent_as_basic_authentication() {
        let login = address("http://me:a%3Ab@c").unwrap().login.unwrap();
        assert_eq!(login, format!("Basic {}", STANDARD.encode("me:a:b")));
        assert_eq!(address("http://c").unwrap().login, None);
    }

    #[test]
    fn what_is_of_use_only_for_a_collector_needs_one() {
        let error = check(&["--otlp-headers", "x=y"]).unwrap_err();
        assert!(error.contains("is of use only with --otlp-url"), "{error}");
        let error = check(&["--otlp-url", "http://c", "--otlp-ca", "/ca.pem"]).unwrap_err();
        assert!(error.contains("--otlp-ca") && error.contains("https://"), "{error}");
    }
}
