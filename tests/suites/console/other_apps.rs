//! An app that was removed and made anew has the name of another. Pages that were opened before, and keys of the
//! earlier app, do nothing to it.

use serde_json::json;

use super::{
    support::Console,
    visitor::{SAME, Visitor},
};

const MESSAGE: &str = "01890000-0000-7000-8000-00000000000a";

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_an_app_does_nothing_to_a_later_app_of_its_name() {
    for console in [Console::embedded().await, Console::scaled().await] {
        console.pushctl(&["app", "create", "news"]).await;
        let key = console.key("root", "admin").await;
        let admin = Visitor::with_key(&console, &key).await;
        console.call(&key, "DELETE", "/v1/admin/apps/news?confirm=news", None).await.result();
        console.pushctl(&["app", "create", "news"]).await;
        let device = json!({"transport": "discard"});
        console.send(&key, "PUT", "/v1/admin/apps/news/devices/d", device).await.result();
        let request = json!({
            "type": 1, "time_to_live": 60, "condition": { "type": 0 }, "notification": { "title": "t" },
        });
        let (request, recall) = (request.to_string(), format!("/messages/news/{MESSAGE}/recall"));
        let test_send = [("app", "news"), ("request", &*request), ("client", "d")];
        for (path, form) in [
            ("/apps/news/disable", &[][..]),
            ("/apps/news/enable", &[]),
            ("/apps/news/limits", &[("rate_limit", "1"), ("pace", "1")]),
            ("/apps/news/secrets", &[("name", "ci")]),
            ("/apps/news/secrets/ci/revoke", &[("made_at", "1")]),
            ("/apps/news/secrets/ci/revoked", &[("made_at", "1"), ("confirm", "ci")]),
            ("/apps/news/transports/fcm/test", &[]),
            ("/devices/news/d/remove", &[]),
            ("/devices/news/d/test", &[("title", "t")]),
            (&*recall, &[]),
            ("/compose", &[("app", "news"), ("title", "t")]),
            ("/compose/preview", &[("app", "news"), ("title", "t")]),
            ("/compose/send", &[("app", "news"), ("request", &*request), ("confirm", "news")]),
            ("/compose/test", &test_send),
            ("/try-it/register", &[("app", "news"), ("browser", "1")]),
        ] {
            let refused = admin.post(path, &[SAME], form).await;
            assert_eq!(refused.status, 409, "{path}: {}", refused.text);
            assert!(refused.text.contains("removed, and there is a new one"), "{}", refused.text);
        }
        let app = console.get(&key, "/v1/admin/apps/news").await;
        assert_eq!(
            (&app.result()["disabled"], &app.result()["devices"]),
            (&json!(false), &json!(1))
        );

        let page = admin.get("/apps/news").await;
        assert!(page.text.contains(r#"action="/apps/news@1/disable""#), "{}", page.text);
        assert_eq!(admin.post("/apps/news@1/disable", &[SAME], &[]).await.status, 303);
        assert_eq!(admin.post("/apps/news@1/enable", &[SAME], &[]).await.status, 303);
        let form = [("app", "news@1"), ("request", &*request), ("confirm", "news")];
        let sent = admin.post("/compose/send", &[SAME], &form).await;
        assert_eq!(sent.status, 303, "{}", sent.text);
        assert_eq!(admin.get(sent.header("location")).await.status, 200);
        assert_eq!(admin.get("/apps/news@7").await.status, 409);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_a_secret_does_not_revoke_a_later_secret_of_its_name() {
    let console = Console::embedded().await;
    console.pushctl(&["app", "create", "news"]).await;
    let key = console.key("root", "admin").await;
    let admin = Visitor::with_key(&console, &key).await;
    let (secrets, new) = ("/v1/admin/apps/news/secrets", json!({"name": "ci", "scopes": ["push"]}));
    let made_at = async || {
        let listed = console.get(&key, secrets).await;
        let listed = listed.result()["secrets"].as_array().unwrap().clone();
        listed.iter().find(|secret| secret["name"] == "ci").unwrap()["made_at"].to_string()
    };
    console.send(&key, "POST", secrets, new.clone()).await.result();
    let shown = made_at().await;
    let asked = admin.post("/apps/news/secrets/ci/revoke", &[SAME], &[("made_at", &shown)]).await;
    assert!(asked.text.contains(&shown), "{}", asked.text);
    console.call(&key, "DELETE", &format!("{secrets}/ci"), None).await.result();
    console.send(&key, "POST", secrets, new).await.result();
    let revoke = async |made_at: &str| {
        let form = [("made_at", made_at), ("confirm", "ci")];
        admin.post("/apps/news/secrets/ci/revoked", &[SAME], &form).await.status
    };
    assert_eq!(revoke(&shown).await, 409);
    assert_eq!(revoke(&made_at().await).await, 303);
}
