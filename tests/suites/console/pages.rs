//! The pages of the console against those who should not use them: without a session, from another site, with too
//! weak a role, with a key of another app, and with markup in what they show.

use serde_json::json;

use super::{
    support::Console,
    visitor::{SAME, Visitor},
};

/// Every form of the pages, and the role that it needs.
const FORMS: [(&str, &str); 19] = [
    ("/compose", "operator"),
    ("/compose/preview", "operator"),
    ("/compose/send", "operator"),
    ("/compose/test", "operator"),
    ("/messages/news/01890000-0000-7000-8000-000000000000/recall", "operator"),
    ("/devices/news/d/test", "operator"),
    ("/devices/news/d/remove", "operator"),
    ("/dead-letters", "operator"),
    ("/dead-letters/confirmed", "operator"),
    ("/try-it/register", "operator"),
    ("/apps/news/transports/fcm/test", "operator"),
    ("/apps", "admin"),
    ("/apps/news/limits", "admin"),
    ("/apps/news/enable", "admin"),
    ("/apps/news/disable", "admin"),
    ("/apps/news/secrets", "admin"),
    ("/apps/news/secrets/ci/revoke", "admin"),
    ("/apps/news/secrets/ci/revoked", "admin"),
    ("/sign-out", "viewer"),
];
const PAGES: [&str; 10] = [
    "/",
    "/messages?app=news",
    "/compose?app=news",
    "/devices?app=news",
    "/dead-letters",
    "/apps",
    "/apps/news",
    "/apps/news/device-counts",
    "/audit",
    "/try-it?app=news",
];

#[tokio::test(flavor = "multi_thread")]
async fn without_a_session_every_page_leads_to_the_sign_in_and_every_form_is_refused() {
    let console = Console::embedded().await;
    console.pushctl(&["app", "create", "news"]).await;
    for stranger in [
        Visitor::stranger(&console),
        Visitor::with_cookie(&console, &format!("{}=guessed", Visitor::cookie_name(&console))),
    ] {
        for path in PAGES {
            let page = stranger.get(path).await;
            assert_eq!((page.status, page.header("location")), (303, "/sign-in"), "{path}");
        }
        for (path, _) in FORMS {
            assert_eq!(stranger.post(path, &[SAME], &[]).await.status, 401, "{path}");
        }
        assert_eq!(stranger.get("/events/now").await.status, 303);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_role_submits_a_form_that_needs_a_stronger_one() {
    let console = Console::embedded().await;
    console.pushctl(&["app", "create", "news"]).await;
    let viewer = Visitor::with_key(&console, &console.key("viewer", "viewer").await).await;
    let operator = Visitor::with_key(&console, &console.key("operator", "operator").await).await;
    for (path, needs) in FORMS {
        if needs != "viewer" {
            let refused = viewer.post(path, &[SAME], &[]).await;
            assert_eq!(refused.status, 403, "{path}: {}", refused.text);
        }
        if needs == "admin" {
            assert_eq!(operator.post(path, &[SAME], &[]).await.status, 403, "{path}");
        }
    }
    for path in PAGES {
        assert_eq!(viewer.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_that_another_site_submits_changes_nothing_and_no_site_frames_a_page() {
    let console = Console::embedded().await;
    let admin = Visitor::with_key(&console, &console.key("admin", "admin").await).await;
    let origin = format!("http://{}", console.address);
    for foreign in [
        &[("sec-fetch-site", "cross-site")][..],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "none")],
        &[("sec-fetch-site", "cross-site"), ("origin", &*origin)],
        &[("origin", "http://evil.example")],
        &[("origin", "null")],
        &[],
    ] {
        let refused = admin.post("/apps", foreign, &[("app_id", "stolen")]).await;
        assert_eq!(refused.status, 403, "{foreign:?}");
    }
    assert_eq!(console.pushctl(&["app", "list"]).await, json!([]));
    for path in PAGES.into_iter().filter(|path| !path.contains("news")) {
        let page = admin.get(path).await;
        let policy = page.header("content-security-policy");
        assert!(policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
        assert!(
            policy.starts_with("default-src 'self';") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(page.header("x-frame-options"), "DENY");
        assert_eq!(page.header("cache-control"), "no-store", "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_an_app_sees_and_changes_nothing_of_another() {
    let console = Console::embedded().await;
    for app in ["news", "secret-project"] {
        console.pushctl(&["app", "create", app]).await;
    }
    let key = console.key_of("news", "tenant", "admin").await;
    let tenant = Visitor::with_key(&console, &key).await;
    for path in ["/apps", "/messages", "/devices", "/compose", "/try-it", "/audit", "/dead-letters"]
    {
        let page = tenant.get(path).await;
        assert_eq!(page.status, 200, "{path}");
        assert!(!page.text.contains("secret-project"), "{path}");
    }
    for path in [
        "/apps/secret-project",
        "/apps/secret-project/device-counts",
        "/messages?app=secret-project",
        "/compose?app=secret-project",
    ] {
        assert_eq!(tenant.get(path).await.status, 404, "{path}");
    }
    for (path, form) in [
        ("/compose/preview", &[("app", "secret-project")][..]),
        ("/compose/send", &[("app", "secret-project"), ("request", "{}")]),
        ("/apps/secret-project/disable", &[]),
        ("/try-it/register", &[("app", "secret-project"), ("browser", "1")]),
    ] {
        assert_eq!(tenant.post(path, &[SAME], form).await.status, 404, "{path}");
    }
    for path in ["/apps", "/events/now"] {
        let refused = match path {
            "/apps" => tenant.post(path, &[SAME], &[("app_id", "another")]).await,
            _ => tenant.get(path).await,
        };
        assert_eq!(refused.status, 403, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_with_its_key_and_with_signing_out() {
    let console = Console::embedded().await;
    let key = console.key("ann", "viewer").await;
    let ann = Visitor::with_key(&console, &key).await;
    assert_eq!(ann.get("/").await.status, 200);
    assert_eq!(ann.post("/sign-out", &[SAME], &[]).await.status, 303);
    assert_eq!(ann.get("/").await.status, 303);
    let again = Visitor::with_key(&console, &key).await;
    console.pushctl(&["admin-key", "revoke", "ann"]).await;
    assert_eq!(again.get("/").await.status, 303, "its key is revoked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_service_leads_to_its_first_app_and_from_there_to_a_push() {
    const FORM: &str = "action=\"/apps\"";
    let console = Console::embedded().await;
    let viewer = Visitor::with_key(&console, &console.key("viewer", "viewer").await).await;
    let admin = Visitor::with_key(&console, &console.key("admin", "admin").await).await;
    for path in ["/", "/messages", "/compose", "/devices", "/try-it"] {
        let page = admin.get(path).await.text;
        assert!(page.contains("Start here") && page.contains(FORM), "{path}: {page}");
        let page = viewer.get(path).await.text;
        assert!(page.contains("Start here") && !page.contains(FORM), "{path}: {page}");
    }
    let made = admin.post("/apps", &[SAME], &[("app_id", "news")]).await;
    assert!(made.text.contains("/try-it?app=news"), "{}", made.text);
    assert!(!admin.get("/").await.text.contains("Start here"));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_not_guessed_at_the_sign_in() {
    let console = Console::embedded().await;
    let stranger = Visitor::stranger(&console);
    let guess = [("key", "pak_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")];
    let mut statuses = Vec::new();
    for _ in 0..30 {
        statuses.push(stranger.post("/sign-in", &[SAME], &guess).await.status);
    }
    assert_eq!((statuses[0], statuses[29]), (401, 429), "{statuses:?}");
    let link = stranger.get("/sign-in?token=guessed").await;
    assert!(link.text.contains("was used or has expired") && link.header("set-cookie").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn markup_in_what_devices_and_producers_choose_is_shown_as_text() {
    const MARKUP: &str = "<script>alert(1)</script>\"'><img src=x>";
    let console = Console::embedded().await;
    console.pushctl(&["app", "create", "news"]).await;
    let admin = Visitor::with_key(&console, &console.key("admin", "admin").await).await;
    let key = console.key("api", "admin").await;
    let device = json!({ "brand": MARKUP, "model": MARKUP, "app_version": MARKUP });
    let put = console.send(&key, "PUT", "/v1/admin/apps/news/devices/d", device).await;
    assert_eq!(put.status, 200, "{}", put.body);
    let request = json!({
        "type": 1, "time_to_live": 60, "condition": { "type": 0 },
        "notification": { "title": MARKUP, "desc": MARKUP },
    });
    let form = [("app", "news"), ("request", &*request.to_string()), ("confirm", "news")];
    let sent = admin.post("/compose/send", &[SAME], &form).await;
    assert_eq!(sent.status, 303, "{}", sent.text);
    let message = sent.header("location").to_owned();
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs([("app", "news"), ("title", MARKUP), ("client_ids", MARKUP)])
        .finish();
    for path in [
        "/devices?app=news",
        "/devices/news/d",
        "/messages?app=news",
        &message,
        &format!("/compose?{query}"),
    ] {
        let page = admin.get(path).await;
        assert_eq!(page.status, 200, "{path}");
        for raw in ["<script>alert", "<img src=x"] {
            assert!(!page.text.contains(raw), "{path}: {}", page.text);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_that_is_submitted_twice_sends_once_and_a_dry_run_is_no_way_around_it() {
    let console = Console::embedded().await;
    console.pushctl(&["app", "create", "news"]).await;
    let admin = Visitor::with_key(&console, &console.key("admin", "admin").await).await;
    let request = json!({
        "type": 1, "time_to_live": 60, "condition": { "type": 0 }, "dry_run": true,
        "notification": { "title": "t" },
    });
    let request = request.to_string();
    let form = [("app", "news"), ("request", &*request), ("once", "1"), ("confirm", "news")];
    let first = admin.post("/compose/send", &[SAME], &form).await;
    let again = admin.post("/compose/send", &[SAME], &form).await;
    assert_eq!((first.status, first.header("location")), (303, again.header("location")));
    assert_eq!(admin.get(first.header("location")).await.status, 200, "it was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_who_send_a_form_slowly_keep_nobody_out() {
    let console = Console::embedded().await;
    let mut slow = Vec::new();
    for _ in 0..80 {
        let mut stream = tokio::net::TcpStream::connect(&console.address).await.unwrap();
        let head = "POST /sign-in HTTP/1.1\r\nhost: a\r\nsec-fetch-site: same-origin\r\n\
                    content-length: 4000\r\n\r\nkey";
        tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    let page = Visitor::stranger(&console).get("/sign-in").await;
    assert_eq!(page.status, 200, "{}", page.text);
}
