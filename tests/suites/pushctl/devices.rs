//! Devices: imported, exported, put, shown and removed.

use serde_json::{Value, json};

use crate::pushctl::support::{DEADLINE, Store};

#[tokio::test]
async fn an_import_reports_bad_lines_by_number_and_takes_the_rest() {
    let store = Store::new();
    store.run(&["app", "create", "a"]).await;
    let file = store.file(
        "devices",
        "{\"client_id\":\"one\",\"country\":\"cn\",\"brand\":\"Xiao Mi\"}\n\
         not json\n\
         {\"client_id\":\"two\",\"language\":\"zh_CN\",\"transport\":\"discard\"}\n\
         {\"client_id\":\"bad id\"}\n\
         {\"client_id\":\"one\",\"country\":\"SG\"}\n",
    );
    let imported = store.run(&["device", "import", "a", &file]).await;
    assert!(!imported.ok, "an import with bad lines does not succeed");
    assert!(
        imported.out.starts_with("3 devices imported (2 new, 1 replaced), 2 bad lines"),
        "{}",
        imported.out
    );
    assert!(imported.err.contains("line 2: not a device"), "{}", imported.err);
    assert!(imported.err.contains("line 4: client_id must be 1 to 128"), "{}", imported.err);

    let exported = store.run(&["device", "export", "a"]).await;
    let mut lines: Vec<Value> =
        exported.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.sort_by_key(|line| line["client_id"].to_string());
    let expected = [
        json!({"client_id": "one", "country": "SG", "transport": "mqtt"}),
        json!({"client_id": "two", "language": "zh-cn", "transport": "discard"}),
    ];
    assert_eq!(lines, expected, "the later of two lines for one device wins");
    let again = store.file("again", &exported.out);
    let imported = store.run(&["device", "import", "a", &again, "--json"]).await.json();
    assert_eq!((&imported["created"], &imported["updated"]), (&json!(0), &json!(2)));
}

#[tokio::test]
async fn devices_are_put_shown_and_removed_one_by_one() {
    let store = Store::new();
    store.run(&["app", "create", "other"]).await;
    let nowhere = store.run(&["device", "put", "a", "d"]).await;
    assert!(nowhere.refused().contains("pushctl app create a"), "{}", nowhere.err);
    store.run(&["app", "create", "a"]).await;
    let put = store.run(&["device", "put", "a", "d", "--country", "China", "--json"]).await;
    assert_eq!(put.json(), json!({"client_id": "d", "transport": "mqtt"}));
    assert!(put.err.starts_with("warning: country must be two letters"), "{}", put.err);
    let put = store.run(&["device", "put", "a", "d", "--transport", "pigeon"]).await;
    assert!(put.refused().contains("transport must be one of"), "{}", put.err);
    assert!(store.run(&["device", "put", "a", "d", "--os-version", "034"]).await.ok);
    let shown = store.run(&["device", "show", "a", "d", "--json"]).await.json();
    assert_eq!(shown, json!({"client_id": "d", "os_version": "34", "transport": "mqtt"}));
    assert!(store.run(&["device", "remove", "a", "d"]).await.ok);
    assert!(store.run(&["device", "show", "a", "d"]).await.refused().contains("no device d"));
}

#[tokio::test]
async fn an_import_takes_devices_with_attributes_that_cannot_be_read_and_warns_by_number() {
    let store = Store::new();
    store.run(&["app", "create", "a"]).await;
    let file = store.file(
        "devices",
        "\u{feff}{\"client_id\":\"one\",\"country\":\"uk\",\"language\":\"iw_IL\"}\n\
         {\"client_id\":\"two\",\"country\":\"Singapore\",\"os_version\":\"14.0\"}\n",
    );
    let imported = store.run(&["device", "import", "a", &file, "--json"]).await.json();
    assert_eq!((&imported["created"], &imported["bad"]), (&json!(2), &json!(0)));
    assert_eq!(imported["warnings"], 2);
    let lines: Vec<_> = imported["warned_lines"].as_array().unwrap().iter().collect();
    assert!(lines.iter().all(|warned| warned["line"] == 2), "{lines:?}");
    let shown = store.run(&["device", "show", "a", "one", "--json"]).await.json();
    assert_eq!((&shown["country"], &shown["language"]), (&json!("GB"), &json!("he-il")));
    let shown = store.run(&["device", "show", "a", "two", "--json"]).await.json();
    assert_eq!(shown, json!({"client_id": "two", "transport": "mqtt"}));
    let text = store.run(&["device", "import", "a", &file]).await;
    assert!(text.ok && text.out.contains("0 bad lines, 2 warnings,"), "{} {}", text.out, text.err);
    assert!(text.err.contains("line 2: country must be two letters"), "{}", text.err);
}

#[tokio::test]
async fn tokens_are_checked_and_exported_as_they_were_imported_and_doctor_names_missing_accounts() {
    let store = Store::new();
    store.run(&["app", "create", "a"]).await;
    let subscription = r#"{"endpoint":"https://push.example/a","keys":{"p256dh":"BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4","auth":"BTBZMqHH6r4Tts7J_aSIgg"}}"#;
    let fcm = "cFyGJqxnT3mVhZ_8-wZ0aB:APA91bHPRgkF3JUikC4ENAHEeMrd41Zxv3hVZjC9KtT8OvPVGJ";
    let devices = [
        json!({"client_id": "browser", "transport": "webpush", "token": subscription}),
        json!({"client_id": "phone", "transport": "fcm", "token": fcm}),
        json!({"client_id": "bad", "transport": "fcm", "token": "t"}),
        json!({"client_id": "none", "transport": "apns"}),
        json!({"client_id": "quiet", "transport": "mqtt"}),
    ];
    let lines: Vec<_> = devices.iter().map(ToString::to_string).collect();
    let file = store.file("devices", &lines.join("\n"));
    let imported = store.run(&["device", "import", "a", &file, "--json"]).await;
    assert!(!imported.ok, "two lines are bad");
    let result: Value = serde_json::from_str(&imported.out).unwrap();
    assert_eq!((&result["created"], &result["without_account"]), (&json!(3), &json!(2)));
    let bad: Vec<_> =
        result["bad_lines"].as_array().unwrap().iter().map(|bad| &bad["line"]).collect();
    assert_eq!(bad, [3, 4]);
    assert!(imported.err.contains("2 devices have a transport"), "{}", imported.err);

    let exported = store.run(&["device", "export", "a"]).await.out;
    let mut exported: Vec<Value> =
        exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    exported.sort_by_key(|device| device["client_id"].to_string());
    assert_eq!(exported, [&devices[0], &devices[1], &devices[4]].map(Clone::clone));
    let shown = store.run(&["device", "show", "a", "browser", "--json"]).await.json();
    assert_eq!(shown, devices[0]);

    let put = ["device", "put", "a", "phone", "--transport", "fcm", "--token"];
    let stored = store.run(&[&put[..], &[fcm]].concat()).await;
    assert!(
        stored.ok && stored.err.contains("warning: the app has no account for fcm"),
        "{}",
        stored.err
    );
    let refused = store.run(&[&put[..], &["t"]].concat()).await;
    assert!(refused.refused().contains("token must be an FCM"), "{}", refused.err);

    let doctor = store.run(&["doctor", "--json"]).await.out;
    let findings: Vec<Value> = serde_json::from_str(&doctor).unwrap();
    let accounts = findings.iter().find(|of| of["subject"] == "accounts").unwrap();
    assert_eq!(accounts["level"], "warning");
    let detail = accounts["detail"].as_str().unwrap();
    assert!(detail.contains("a has 1 of fcm, a has 1 of webpush"), "{detail}");
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_ends_a_command_quietly() {
    let store = Store::new();
    store.run(&["app", "create", "a"]).await;
    let devices: String =
        (0..20_000).map(|n| format!("{{\"client_id\":\"device-{n}\"}}\n")).collect();
    let file = store.file("devices", &devices);
    assert!(store.run(&["device", "import", "a", &file]).await.ok);
    let data = store.dir().to_str().unwrap();
    for command in [&["device", "export", "a"][..], &["app", "list"], &["reference"]] {
        let mut child = tokio::process::Command::new(push_tests::service::built("pushctl"))
            .args([&["--data-dir", data], command].concat())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let ended =
            tokio::time::timeout(DEADLINE, child.wait_with_output()).await.unwrap().unwrap();
        assert_eq!(ended.status.code(), Some(141), "{command:?}");
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "", "{command:?}");
    }
}
