//! Everything that must hold before a page is made: signed in, from this very site, with the role.

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header},
    middleware::Next,
    response::{IntoResponse, Redirect, Response},
};
use push_model::admin_key::{KeyDigest, Role};
use tokio::time::Instant;

use super::{Desk, EVENTS, MUTATIONS, error::Failure};
use crate::{
    access::Caller,
    names::Names,
    server::request::{ClientAddress, OfKnownCaller},
    sessions::LIFE,
};

/// What a session stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A key, which is looked up for each request, so that a revoked one ends its sessions.
    Key(KeyDigest),
    /// The link that `standalone` prints on its terminal.
    Terminal,
}

/// Nothing but what this site serves: no inline script or style, no frame, no other origin.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
                      object-src 'none'";

/// Adds to every answer what keeps a browser from being used against its user. A page may have a policy of its own.
pub(super) async fn harden(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(POLICY));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Returns the policy of a page whose script also connects to the origin of this URL. None without one.
pub(super) fn policy_to_connect_to(url: &str) -> Option<HeaderValue> {
    let url: Uri = url.parse().ok()?;
    let (scheme, authority) = (url.scheme_str()?, url.authority()?);
    HeaderValue::try_from(format!("{POLICY}; connect-src 'self' {scheme}://{authority}")).ok()
}

/// Lets a request pass that names this console, and no other host.
pub(super) async fn known_name(
    State(desk): State<Arc<Desk>>,
    request: Request,
    next: Next,
) -> Response {
    if desk.names.port_of(request.headers()).is_some() {
        return next.run(request).await;
    }
    let named = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let text = format!(
        "This console is not known as {}. Use its address, or start it with --admin-public-url, the URL under which \
         browsers open it.",
        named.unwrap_or("what the request names")
    );
    Failure::new(StatusCode::MISDIRECTED_REQUEST, text).into_response()
}

/// Lets a request pass that changes something only if a page of this site sent it. A browser says so itself in
/// `Sec-Fetch-Site` (W3C Fetch Metadata); one that does not must name this site as its `Origin`.
pub(super) async fn same_site(
    State(desk): State<Arc<Desk>>,
    request: Request,
    next: Next,
) -> Response {
    if is_reading(request.method()) || is_from_here(&desk.names, request.headers()) {
        return next.run(request).await;
    }
    let text = "This request did not come from a page of this site.";
    Failure::new(StatusCode::FORBIDDEN, text).into_response()
}

fn is_reading(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn is_from_here(names: &Names, headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    match text(HeaderName::from_static("sec-fetch-site")) {
        Some(site) => site == "same-origin",
        None => text(header::ORIGIN).is_some_and(|origin| names.is_own(origin, text(header::HOST))),
    }
}

/// Finds out who is signed in, and checks their role where something is changed. Without a session, a page
/// leads to the sign-in page.
pub(super) async fn signed_in(
    State(desk): State<Arc<Desk>>,
    mut request: Request,
    next: Next,
) -> Response {
    let cookie = desk.cookie_of(request.headers());
    let token = cookie.token(request.headers()).map(str::to_owned);
    let peer = request.extensions().get::<ClientAddress>().map(|client| client.0);
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let visitor = match (&token, peer) {
        (Some(token), Some(peer)) => match desk.visitor(token, peer, path == EVENTS).await {
            Ok(visitor) => visitor,
            Err(failure) => return failure.into_response(),
        },
        _ => None,
    };
    let Some(visitor) = visitor else { return sign_in_first(&request) };
    if !is_reading(request.method()) {
        let needed = MUTATIONS.iter().find(|of| of.0 == path).map_or(Role::Admin, |of| of.1);
        if !visitor.may(needed) {
            let text = format!("This needs the role {needed}; yours is {}.", visitor.role());
            return Failure::new(StatusCode::FORBIDDEN, text).into_response();
        }
    }
    request.extensions_mut().insert(visitor);
    let mut response = next.run(request).await;
    response.extensions_mut().insert(OfKnownCaller);
    // A session lives on with each page.
    if let Some(token) = token
        && !response.headers().contains_key(header::SET_COOKIE)
    {
        response.headers_mut().insert(header::SET_COOKIE, cookie.set(&token));
    }
    response
}

fn sign_in_first(request: &Request) -> Response {
    let is_part = request.headers().contains_key("hx-request");
    match is_reading(request.method()) && !is_part {
        true => Redirect::to("/sign-in").into_response(),
        false => Failure::new(StatusCode::UNAUTHORIZED, "Your session has ended: sign in again.")
            .into_response(),
    }
}

impl Desk {
    /// Returns who has this session. What follows events shares its look at a key with others.
    async fn visitor(
        &self,
        token: &str,
        peer: IpAddr,
        is_following: bool,
    ) -> Result<Option<Caller>, Failure> {
        let Some(holder) = self.sessions.holder(token, Instant::now()) else { return Ok(None) };
        let access = &self.core.access;
        match holder {
            Holder::Terminal => Ok(Some(access.of_terminal(peer))),
            Holder::Key(digest) => {
                let caller = match is_following {
                    true => access.resume_follower(&digest, peer).await?,
                    false => access.resume(&digest, peer).await?,
                };
                if caller.is_none() {
                    self.sessions.end(token);
                }
                Ok(caller)
            }
        }
    }

    /// Returns the cookie of sessions for the address that a request names.
    pub(super) fn cookie_of(&self, headers: &HeaderMap) -> Cookie {
        let (is_secure, port) = (self.names.is_secure(), self.names.port_of(headers));
        Cookie::new(is_secure, port.unwrap_or_default())
    }
}

/// The cookie of sessions. Browsers send a cookie to all ports of a host, so its name has the port: otherwise two
/// consoles on one machine, or forwarded to it, would end each other's sessions.
#[derive(Debug)]
pub(super) struct Cookie {
    name: String,
    is_secure: bool,
}

impl Cookie {
    /// Over TLS with the prefix that binds a cookie to this host (RFC 6265bis section 4.1.3.2).
    fn new(is_secure: bool, port: u16) -> Self {
        let prefix = if is_secure { "__Host-" } else { "" };
        Self { name: format!("{prefix}push-console-{port}"), is_secure }
    }

    /// Returns the token of a request's session.
    pub(super) fn token<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let mut pairs = lines.flat_map(|line| line.split(';'));
        pairs.find_map(|pair| pair.trim().strip_prefix(&*self.name)?.strip_prefix('='))
    }

    /// Writes the cookie of a session. An empty token removes it.
    pub(super) fn set(&self, token: &str) -> HeaderValue {
        let (name, secure) = (&self.name, if self.is_secure { "; Secure" } else { "" });
        let life = if token.is_empty() { 0 } else { LIFE.as_secs() };
        let cookie =
            format!("{name}={token}; Path=/; Max-Age={life}; HttpOnly; SameSite=Strict{secure}");
        HeaderValue::try_from(cookie).unwrap_or(HeaderValue::from_static(""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::PublicUrl;

    fn headers(of: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = of
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        pairs.collect()
    }

    #[test]
    fn the_cookie_has_the_port_and_over_tls_it_is_bound_to_the_host() {
        let cookie = Cookie::new(true, 443);
        let set = cookie.set("t");
        let set = set.to_str().unwrap();
        assert!(set.starts_with("__Host-push-console-443=t; Path=/;"), "{set}");
        assert!(set.ends_with("; Secure") && !set.contains("Domain"), "{set}");
        let sent = headers(&[("cookie", "push-console-80=a; push-console-8082=b")]);
        assert_eq!(Cookie::new(false, 8082).token(&sent), Some("b"));
        assert_eq!(Cookie::new(false, 808).token(&sent), None);
        assert!(!Cookie::new(false, 1).set("t").to_str().unwrap().contains("Secure"));
    }

    #[test]
    fn only_a_page_of_this_site_changes_something() {
        let mut names = Names { public: None, listen: [127, 0, 0, 1].into(), is_tls: false };
        for (from, allowed) in [
            (&[("sec-fetch-site", "same-origin")][..], true),
            (&[("sec-fetch-site", "same-site")], false),
            (&[("sec-fetch-site", "cross-site"), ("origin", "http://h:1"), ("host", "h:1")], false),
            (&[("sec-fetch-site", "none")], false),
            (&[("origin", "http://h:1"), ("host", "h:1")], true),
            (&[("origin", "http://evil"), ("host", "h:1")], false),
            (&[("origin", "null"), ("host", "null")], false),
            (&[("host", "h:1")], false),
        ] {
            assert_eq!(is_from_here(&names, &headers(from)), allowed, "{from:?}");
        }
        names.public = Some(PublicUrl::parse("https://push.example.com").unwrap());
        for (origin, host, allowed) in [
            ("https://push.example.com", "127.0.0.1:8082", true),
            ("https://push.example.com", "push.example.com", true),
            ("http://push.example.com", "push.example.com", false),
            ("https://evil.example", "127.0.0.1:8082", false),
        ] {
            let sent = headers(&[("origin", origin), ("host", host)]);
            assert_eq!(is_from_here(&names, &sent), allowed, "{origin} {host}");
        }
    }
}
