//! The names under which browsers reach the console, and the cookies that they get there.

use serde_json::json;

use super::{
    support::Console,
    visitor::{SAME, Visitor, exchange},
};

const PUBLIC: &str = "https://push.example.com";

/// The head of a request under a name.
fn request(method: &str, path: &str, host: &str, more: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n{more}content-length: 0\r\n\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_under_an_invented_name_is_refused_so_no_site_becomes_its_origin() {
    let console = Console::embedded().await;
    let admin = Visitor::with_key(&console, &console.key("admin", "admin").await).await;
    let port = console.address.rsplit(':').next().unwrap();
    let cookie = format!("cookie: {}\r\nsec-fetch-site: same-origin\r\n", admin.cookie);
    let evil = format!("evil.example:{port}");
    for (method, path) in [
        ("GET", "/"),
        ("GET", "/apps"),
        ("GET", "/sign-in?token=guessed"),
        ("POST", "/sign-in"),
        ("POST", "/apps/news/disable"),
        ("GET", "/events/now"),
        ("GET", "/mqtt"),
    ] {
        let (status, _) = exchange(&console, &request(method, path, &evil, &cookie)).await;
        assert_eq!(status, 421, "{method} {path}");
    }
    for host in ["evil.example", "localhost.evil.example", "10.1.2.3", "[2001:db8::1]", ""] {
        assert_eq!(exchange(&console, &request("GET", "/", host, &cookie)).await.0, 421, "{host}");
    }
    let twice = format!("host: localhost\r\n{cookie}");
    assert_eq!(exchange(&console, &request("GET", "/", &evil, &twice)).await.0, 421);
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8082", &console.address] {
        let (status, _) = exchange(&console, &request("GET", "/sign-in", host, "")).await;
        assert_eq!(status, 200, "{host}");
    }
    let key = console.key("api", "viewer").await;
    let bearer = format!("authorization: Bearer {key}\r\n");
    let with_a_key = request("GET", "/v1/admin/me", "console.push.svc", &bearer);
    let called = exchange(&console, &with_a_key);
    assert_eq!(called.await.0, 200, "a key is sent by no browser");
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_proxy_that_ends_tls_cookies_go_over_tls_alone_and_the_proxy_may_change_the_host()
{
    let console = Console::embedded_with(&["--admin-public-url", PUBLIC]).await;
    let key = console.key("admin", "admin").await;
    let body = format!("key={key}");
    for (host, origin, expected) in [
        ("push.example.com", PUBLIC, 303),
        (&*console.address, PUBLIC, 303),
        ("push.example.com", "http://push.example.com.evil", 403),
        ("127.0.0.1", "https://evil.example", 403),
        ("evil.example", PUBLIC, 421),
    ] {
        let head = format!(
            "POST /sign-in HTTP/1.1\r\nhost: {host}\r\norigin: {origin}\r\n\
             content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let (status, head) = exchange(&console, &head).await;
        assert_eq!(status, expected, "{host} {origin}: {head}");
        if expected == 303 {
            assert!(head.contains("set-cookie: __host-push-console-"), "{head}");
            assert!(head.contains("; secure"), "{head}");
        }
    }
    for (origin, expected) in [(PUBLIC, 101), ("https://evil.example", 403)] {
        let upgrade = format!(
            "origin: {origin}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: mqtt\r\n"
        );
        let asked = request("GET", "/mqtt", &console.address, &upgrade);
        assert_eq!(exchange(&console, &asked).await.0, expected, "{origin}");
    }
    let log = console.program.log();
    assert!(log.contains("https://push.example.com/sign-in?token="), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_consoles_on_one_machine_do_not_end_each_others_sessions() {
    let (one, two) = (Console::embedded().await, Console::embedded().await);
    let (key_one, key_two) = (one.key("a", "viewer").await, two.key("b", "viewer").await);
    let first = Visitor::with_key(&one, &key_one).await;
    let second = Visitor::with_key(&two, &key_two).await;
    assert!(first.cookie.starts_with(&Visitor::cookie_name(&one)), "{}", first.cookie);
    // A browser keeps both, under the one host, and sends both to each.
    let both = format!("{}; {}", first.cookie, second.cookie);
    for console in [&one, &two] {
        assert_eq!(Visitor::with_cookie(console, &both).get("/").await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_browsers_remove_from_paths_are_made_nowhere() {
    let console = Console::embedded().await;
    console.pushctl(&["app", "create", "news"]).await;
    let (key, secrets) = (console.key("root", "admin").await, "/v1/admin/apps/news/secrets");
    for name in [".", ".."] {
        let app = console.send(&key, "POST", "/v1/admin/apps", json!({"app_id": name})).await;
        assert!(app.refused(400).contains("neither"), "{app:?}");
        let secret = json!({"name": name, "scopes": ["push"]});
        console.send(&key, "POST", secrets, secret).await.refused(400);
        let new = json!({"name": name, "role": "viewer"});
        console.send(&key, "POST", "/v1/admin/keys", new).await.refused(400);
    }
    let admin = Visitor::with_key(&console, &key).await;
    assert_eq!(admin.post("/apps", &[SAME], &[("app_id", "..")]).await.status, 400);
    assert_eq!(admin.post("/apps/news/secrets", &[SAME], &[("name", ".")]).await.status, 400);
}
