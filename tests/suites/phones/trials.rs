//! Accounts that an operator tries by hand, and those that the doctor tries.

use std::process::Output;

use push_tests::{
    certificates::Authority,
    free_port,
    phone_server::{Face, PhoneServer, Reply, apns_error, fcm_error, fcm_field_error},
    service::pushctl_output,
};
use rcgen::KeyPair;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{apns_token, browser, fcm_token, service_account};

/// An operator's data directory with the app `shop`, and providers that its accounts lead to.
struct Desk {
    authority: Authority,
    fcm: PhoneServer,
    tokens: PhoneServer,
    apns: PhoneServer,
    webpush: PhoneServer,
    webhook: PhoneServer,
    folder: TempDir,
}

/// The end of a trial: its result as JSON, and true if the command succeeded.
struct Trial {
    result: Value,
    ok: bool,
}

impl Trial {
    /// Asserts its verdict and code, and that what to do is said with this word.
    #[track_caller]
    fn fails(&self, verdict: &str, code: Option<&str>, word: &str) {
        let result = &self.result;
        assert!(!self.ok, "it exits with success: {result}");
        assert_eq!((&result["works"], &result["verdict"]), (&false.into(), &verdict.into()));
        assert_eq!(result.get("code"), code.map(Value::from).as_ref(), "{result}");
        let remedy = result["remedy"].as_str().unwrap_or_default();
        assert!(remedy.contains(word), "{word} is not in {result}");
    }

    #[track_caller]
    fn succeeds(&self, verdict: &str) {
        let result = &self.result;
        assert!(self.ok, "it exits with a failure: {result}");
        assert_eq!((&result["works"], &result["verdict"]), (&true.into(), &verdict.into()));
        assert!(result.get("remedy").is_none(), "{result}");
    }
}

impl Desk {
    async fn new() -> Self {
        let authority = Authority::new();
        let certificate = authority.local_server();
        let with_tls = Some(&certificate);
        let desk = Self {
            fcm: PhoneServer::start(Face::Fcm, None).await,
            tokens: PhoneServer::start(Face::Tokens, with_tls).await,
            apns: PhoneServer::start(Face::Apns, None).await,
            webpush: PhoneServer::start(Face::WebPush, with_tls).await,
            webhook: PhoneServer::start(Face::Webhook, with_tls).await,
            authority,
            folder: TempDir::new().unwrap(),
        };
        desk.run(&["app", "create", "shop"]).await;
        desk
    }

    async fn output(&self, command: &[&str]) -> Output {
        let data = self.folder.path().join("data");
        pushctl_output(&[&["--data-dir", data.to_str().unwrap()], command].concat()).await
    }

    async fn run(&self, command: &[&str]) -> String {
        let output = self.output(command).await;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    async fn set(&self, app: &str, kind: &str, flags: &[&str]) -> String {
        self.run(&[&["app", "transport", "set", app, kind], flags].concat()).await
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    async fn set_all(&self) {
        let account = service_account("project", &format!("{}/token", self.tokens.url()));
        let file = self.file("service-account.json", &account.to_string());
        self.set("shop", "fcm", &["--service-account", &file]).await;
        let key = self.file("key.p8", &KeyPair::generate().unwrap().serialize_pem());
        let flags = ["--key", &key, "--key-id", "ABC123DEFG", "--team-id", "TEAM123456"];
        self.set("shop", "apns", &[&flags[..], &["--topic", "com.example.shop"]].concat()).await;
        self.set("shop", "webpush", &[]).await;
        self.set("shop", "webhook", &["--url", &format!("{}/push", self.webhook.url())]).await;
    }

    async fn put(&self, client: &str, kind: &str, token: &str) {
        self.run(&["device", "put", "shop", client, "--transport", kind, "--token", token]).await;
    }

    /// The settings of a worker that may reach this machine.
    fn providers(&self) -> Vec<String> {
        let (fcm, apns) = (self.fcm.url(), self.apns.url());
        let authority = self.authority.file().to_str().unwrap();
        ["--fcm-url", &fcm, "--apns-url", &apns, "--outbound-ca", authority]
            .into_iter()
            .chain(["--outbound-allow", "127.0.0.0/8"])
            .map(str::to_owned)
            .collect()
    }

    /// Tries an account, with a device or without one.
    async fn test(&self, kind: &str, client: Option<&str>) -> Trial {
        let providers = self.providers();
        let mut command = vec!["app", "transport", "test", "shop", kind];
        command.extend(client);
        command.push("--json");
        command.extend(providers.iter().map(String::as_str));
        self.tried(&command).await
    }

    async fn tried(&self, command: &[&str]) -> Trial {
        let output = self.output(command).await;
        let text = String::from_utf8_lossy(&output.stdout);
        let result = serde_json::from_str(&text)
            .unwrap_or_else(|e| panic!("{e}: {text} {}", String::from_utf8_lossy(&output.stderr)));
        Trial { result, ok: output.status.success() }
    }

    /// The findings of the doctor about the trials of accounts.
    async fn doctor(&self, flags: &[&str]) -> Vec<Value> {
        let providers = self.providers();
        let providers = providers.iter().map(String::as_str);
        let command: Vec<_> = ["doctor", "--json"].into_iter().chain(providers).collect();
        let output = self.output(&[&command[..], flags].concat()).await;
        let findings: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        let is_trial = |finding: &Value| {
            let subject = finding["subject"].as_str().unwrap();
            subject == "account trials" || subject.starts_with("account of ")
        };
        findings.into_iter().filter(is_trial).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_its_provider_accepts_works_and_no_device_is_sent_to() {
    let desk = Desk::new().await;
    desk.set_all().await;
    desk.fcm.answer(|_, _| Reply::answer(400, fcm_field_error("message.token")));
    desk.apns.answer(|_, _| Reply::answer(400, apns_error("BadDeviceToken")));
    for kind in ["fcm", "apns", "webhook"] {
        desk.test(kind, None).await.succeeds("works");
    }
    desk.test("webpush", None).await.succeeds("unchecked");
    let body: Value = serde_json::from_slice(&desk.fcm.record().body).unwrap();
    assert_eq!(body["validate_only"], true, "{body}");
    let hook = desk.webhook.record();
    assert_eq!(hook.body, br#"{"type":"test","devices":[]}"#);
    assert!(hook.headers.contains_key("webhook-signature"), "{:?}", hook.headers);
    assert_eq!(desk.webpush.record().connections, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_its_provider_refuses_fails_with_the_code_and_what_to_do() {
    let desk = Desk::new().await;
    desk.set_all().await;
    desk.fcm.answer(|_, _| Reply::answer(403, fcm_error(403, "")));
    desk.test("fcm", None).await.fails("account_broken", Some("PERMISSION_DENIED"), "role");
    desk.tokens.answer(|_, _| Reply::answer(400, r#"{"error":"invalid_grant"}"#));
    desk.test("fcm", None).await.fails("account_broken", Some("invalid_grant"), "new key");
    desk.apns.answer(|_, _| Reply::answer(403, apns_error("InvalidProviderToken")));
    desk.test("apns", None).await.fails(
        "account_broken",
        Some("InvalidProviderToken"),
        "--team-id",
    );
    desk.webhook.answer(|_, _| Reply::answer(401, ""));
    desk.test("webhook", None).await.fails("account_broken", Some("unauthorized"), "secret");
    desk.webhook.answer(|_, _| Reply::answer(503, "").retry_after(7));
    desk.test("webhook", None).await.fails("failing", None, "again in 7 s");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_notification_to_a_device_is_sent_gone_or_refused_and_removes_nothing() {
    let desk = Desk::new().await;
    desk.set_all().await;
    desk.put("phone", "fcm", &fcm_token(1)).await;
    desk.put("ipad", "apns", &apns_token(1)).await;
    desk.put("tab", "webpush", &browser(&format!("{}/push/1", desk.webpush.url()))).await;
    desk.put("pager", "webhook", "+353 1 234").await;
    for (kind, client) in
        [("fcm", "phone"), ("apns", "ipad"), ("webpush", "tab"), ("webhook", "pager")]
    {
        desk.test(kind, Some(client)).await.succeeds("sent");
    }
    for server in [&desk.fcm, &desk.apns, &desk.webpush, &desk.webhook] {
        assert_eq!(server.record().devices(), 1);
    }
    desk.fcm.answer(|_, _| Reply::answer(404, fcm_error(404, "UNREGISTERED")));
    desk.test("fcm", Some("phone")).await.fails("gone", Some("UNREGISTERED"), "register");
    desk.apns.answer(|_, _| Reply::answer(400, apns_error("BadDeviceToken")));
    desk.test("apns", Some("ipad")).await.fails("refused", Some("BadDeviceToken"), "--sandbox");
    desk.webpush.answer(|_, _| Reply::answer(403, ""));
    desk.test("webpush", Some("tab")).await.fails("refused", Some("forbidden"), "subscribe");
    desk.webhook.answer(|_, _| Reply::outcome(json!({"status": "refused"})));
    desk.test("webhook", Some("pager")).await.fails("refused", Some("refused"), "log");
    desk.run(&["device", "show", "shop", "phone"]).await;
    let other = desk.output(&["app", "transport", "test", "shop", "apns", "phone"]).await;
    let error = String::from_utf8_lossy(&other.stderr);
    assert!(!other.status.success() && error.contains("is a device of fcm"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_or_may_not_be_reached_is_named_with_the_reason() {
    let desk = Desk::new().await;
    desk.set_all().await;
    let nowhere = format!("http://{}", free_port().unwrap().address());
    let test = ["app", "transport", "test", "shop"];
    let flags = [&test[..], &["apns", "--json", "--apns-url", &nowhere]].concat();
    let tried = desk.tried(&flags).await;
    tried.fails("unreachable", None, "firewall");
    assert!(tried.result["found"].as_str().unwrap().starts_with(&nowhere), "{}", tried.result);
    let authority = desk.authority.file().to_str().unwrap();
    let webhook = ["webhook", "--json", "--outbound-ca", authority];
    let tried = desk.tried(&[&test[..], &webhook].concat()).await;
    tried.fails("unreachable", Some("forbidden_address"), "--outbound-allow");
    assert_eq!(desk.webhook.record().connections, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_tries_every_account_and_names_those_that_are_broken() {
    let desk = Desk::new().await;
    let [none] = &desk.doctor(&[]).await[..] else { panic!("several findings") };
    assert_eq!(none["level"], "ok", "{none}");
    desk.set_all().await;
    desk.fcm.answer(|_, _| Reply::answer(400, fcm_field_error("message.token")));
    desk.apns.answer(|_, _| Reply::answer(403, apns_error("InvalidProviderToken")));
    desk.webhook.answer(|_, _| Reply::answer(503, ""));
    let findings = desk.doctor(&[]).await;
    let of = |subject: &str| findings.iter().find(|found| found["subject"] == subject).unwrap();
    assert_eq!(of("account of shop at apns")["level"], "error", "{findings:?}");
    assert!(of("account of shop at apns")["remedy"].as_str().unwrap().contains("--key-id"));
    assert_eq!(of("account of shop at webhook")["level"], "warning", "{findings:?}");
    let detail = "1 of 4 work, 1 can be tried with a device only";
    assert_eq!(of("account trials")["detail"], detail);
    let seal = desk.folder.path().join("data/seal-keys.json");
    std::fs::rename(&seal, desk.folder.path().join("elsewhere")).unwrap();
    let findings = desk.doctor(&[]).await;
    let [skipped] = &findings[..] else { panic!("several findings: {findings:?}") };
    assert_eq!(skipped["level"], "skipped");
    assert!(skipped["remedy"].as_str().unwrap().contains("--seal-key"), "{skipped}");
}

#[tokio::test(flavor = "multi_thread")]
async fn setting_web_push_again_keeps_what_is_not_named() {
    let desk = Desk::new().await;
    let key =
        |set: &str| set.lines().find(|line| line.starts_with("public key")).unwrap().to_owned();
    let flags = ["--subject", "mailto:ops@shop.example", "--declarative", "https://shop.example/"];
    let first = key(&desk.set("shop", "webpush", &flags).await);
    assert_eq!(key(&desk.set("shop", "webpush", &[]).await), first);
    let list = desk.run(&["app", "transport", "list", "shop"]).await;
    assert!(list.contains("mailto:ops@shop.example, opens https://shop.example/"), "{list}");
    desk.set("shop", "webpush", &["--declarative", "none"]).await;
    let new = key(&desk.set("shop", "webpush", &["--new-key", "--yes"]).await);
    assert_ne!(new, first);
    let list = desk.run(&["app", "transport", "list", "shop"]).await;
    assert!(list.contains("mailto:ops@shop.example") && !list.contains("opens"), "{list}");
}
