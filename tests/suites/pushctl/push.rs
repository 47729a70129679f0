//! Pushes made from flags, and the profiles that stand in for server and secret.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use push_tests::{
    free_port,
    service::{Program, pushctl_output_with},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::pushctl::support::{Ran, Store};

/// Runs a command with profiles in this folder, and with these variables.
async fn run_with(profiles: &Path, command: &[&str], variables: &[(&str, &str)]) -> Ran {
    let home = [("XDG_CONFIG_HOME", profiles.to_str().unwrap())];
    let output = pushctl_output_with(command, &[&home, variables].concat()).await;
    Ran {
        ok: output.status.success(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[tokio::test]
async fn a_saved_profile_stands_in_for_server_and_secret_of_later_commands() {
    let (store, profiles) = (Store::new(), TempDir::new().unwrap());
    let data = store.dir().to_str().unwrap();
    let [http, mqtt] = [(); 2].map(|()| free_port().unwrap().address());
    let flags = ["standalone", "--data-dir", data, "--listen", &http, "--mqtt-listen", &mqtt];
    let _standalone = Program::start_ready("pushctl", &flags).await;
    let url = format!("http://{http}");
    let run = async |command: &[&str]| run_with(profiles.path(), command, &[]).await;

    let create = ["app", "create", "news", "--save", "--server", &url, "--data-dir", data];
    let created = run(&create).await;
    assert!(
        created.ok && created.out.contains("kept, not shown"),
        "{} {}",
        created.out,
        created.err
    );
    let file = profiles.path().join("pushctl/profiles.json");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let kept: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let secret = kept["profiles"]["news"]["secret"].as_str().unwrap().to_owned();
    let expected = json!({ "profile": "news", "app_id": "news", "server": url, "in_use": true });
    assert_eq!(run(&["profile", "show", "--json"]).await.json(), expected);
    assert_eq!(run(&["profile", "list", "--json"]).await.json(), json!([expected]));
    for shown in [&created, &run(&["profile", "show"]).await, &run(&["profile", "list"]).await] {
        assert!(!shown.out.contains(&secret) && !shown.err.contains(&secret));
    }

    let [right, wrong] = [&*secret, "9b1f4c07d2e86a35f0c4b7d91e6a2835"];
    let [right, wrong] =
        [("right", right), ("wrong", wrong)].map(|(name, it)| store.file(name, it));
    let add = ["profile", "add", "news", "--profile", "second", "--secret-file"];
    let refused = run(&[&add[..], &[&wrong, "--server", &url]].concat()).await;
    assert!(refused.refused().contains("does not take this secret of app news"), "{}", refused.err);
    assert!(!run(&["profile", "show", "second"]).await.ok, "it is not kept");
    let added = run(&[&add[..], &[&right, "--server", &url]].concat()).await;
    assert!(added.ok && !added.err.contains("not tried"), "{}", added.err);
    assert!(run(&["profile", "remove", "second"]).await.ok);
    let away = run(&[&add[..], &[&wrong, "--server", "http://127.0.0.1:1"]].concat()).await;
    assert!(away.ok && away.err.contains("not tried: no answer from"), "{}", away.err);
    assert!(run(&["profile", "remove", "second"]).await.ok);

    let put = ["device", "put", "news", "phone-1", "--country", "SG", "--transport", "discard"];
    assert_eq!(run(&[&put[..], &["--json"]].concat()).await.json()["country"], "SG");
    assert_eq!(run(&["device", "show", "news", "phone-1", "--json"]).await.json()["country"], "SG");

    let dry = run(&["push", "news", "--title", "Hi", "--all", "--dry-run"]).await;
    assert!(dry.ok && dry.out.starts_with("valid, nothing was sent"), "{} {}", dry.out, dry.err);
    let push = ["push", "news", "--title", "Hi", "--desc", "There", "--country", "SG", "--watch"];
    let watched = run(&[&push[..], &["--json"]].concat()).await;
    let last: Value = serde_json::from_str(watched.out.lines().last().unwrap()).unwrap();
    assert!(watched.ok, "{} {}", watched.out, watched.err);
    assert_eq!((&last["state"], &last["sent"]), (&json!("done"), &json!(1)));
    let id = last["message_id"].as_str().unwrap();
    let shown = run(&["message", "show", "news", id, "--json"]).await.json();
    let in_store = run(&["message", "show", "news", id, "--json", "--data-dir", data]).await.json();
    assert_eq!((&shown, &shown), (&last, &in_store), "one form everywhere");

    let none = run(&["push", "news", "--title", "Hi", "--to", "nobody", "--watch"]).await;
    assert!(!none.ok && none.err.contains("reached none of its 1 devices"), "{}", none.err);

    let body =
        json!({ "type": 1, "time_to_live": 60, "time_to_life": 1, "condition": { "type": 0 } });
    let body = store.file("push.json", &body.to_string());
    let refused = run(&["push", "news", &body]).await;
    let nearest = "time_to_life is an unknown field; the nearest one is time_to_live";
    assert!(refused.refused().contains(&format!("21005: Message illegal: {nearest}")));
    let lenient = run(&["push", "news", &body, "--lenient"]).await;
    assert!(lenient.ok && lenient.err.contains(&format!("warning: {nearest}")), "{}", lenient.err);
    assert!(lenient.err.contains("neither title nor desc"), "{}", lenient.err);

    let elsewhere = ["push", "news", "--title", "Hi", "--all", "--server", "http://127.0.0.1:1"];
    assert!(run(&elsewhere).await.refused().contains("its secret is not sent to"));
    let wrong = [("PUSH_SECRET", "9b1f4c07d2e86a35f0c4b7d91e6a2835"), ("PUSH_SERVER", &*url)];
    let wrong =
        run_with(profiles.path(), &["push", "news", "--title", "Hi", "--all"], &wrong).await;
    assert!(wrong.refused().contains("refused with 21004"), "{}", wrong.err);
    assert!(wrong.err.contains("pushctl app rotate-secret news"), "the next step: {}", wrong.err);
    // A flag for the store is meant more than variables for a server.
    let nowhere = [("PUSH_SECRET", &*secret), ("PUSH_SERVER", "http://127.0.0.1:1")];
    let show = ["message", "show", "news", id, "--json", "--data-dir", data];
    let shown = run_with(profiles.path(), &show, &nowhere).await;
    assert!(shown.ok && shown.err.contains("are not used"), "{}", shown.err);
    let show = &show[..5];
    let away = run_with(profiles.path(), show, &nowhere).await;
    assert!(away.refused().contains("check that `ingest` or"), "the next step: {}", away.err);
    let both = run(&[show, &["--data-dir", data, "--server", &url]].concat()).await;
    assert!(both.refused().contains("leave out one of them"), "{}", both.err);
    let other = TempDir::new().unwrap();
    let given = [("PUSH_SECRET", &*secret), ("PUSH_SERVER", &*url)];
    let given = run_with(other.path(), &["push", "news", "--title", "Hi", "--all"], &given).await;
    assert!(given.ok, "{}", given.err);

    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(run(&["push", "news", "--title", "Hi", "--all"]).await.refused().contains("chmod 600"));
}

#[tokio::test]
async fn a_command_without_a_store_says_which_one_it_looked_for_and_makes_none() {
    let (folder, profiles) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let missing = folder.path().join("missing");
    let data = missing.to_str().unwrap();
    let id = "01890000-0000-7000-8000-00000000000a";
    for command in [
        &["app", "list"][..],
        &["app", "show", "a"],
        &["app", "remove", "a", "--yes"],
        &["device", "show", "a", "b"],
        &["device", "put", "a", "b"],
        &["device", "export", "a"],
        &["message", "show", "a", id],
        &["message", "watch", "a", id],
        &["dead", "list"],
        &["dead", "drop", "--all", "--yes"],
        &["audit", "list"],
    ] {
        let flags = [command, &["--data-dir", data]].concat();
        let refused = run_with(profiles.path(), &flags, &[]).await;
        let text = refused.refused();
        assert!(text.contains(&format!("no store in {data}")), "{command:?}: {text}");
        assert!(text.contains("--data-dir"), "{command:?}: {text}");
        assert!(!missing.exists(), "{command:?}");
    }
}

#[tokio::test]
async fn flags_of_a_push_that_contradict_each_other_are_refused_before_anything_is_sent() {
    let profiles = TempDir::new().unwrap();
    for (flags, told) in [
        (&["--title", "Hi"][..], "say who gets it"),
        (&["--all"], "say what to send"),
        (&["-", "--title", "Hi"], "leave out --title, or FILE"),
        (&["-", "--batch", "--all"], "leave out --all, or --batch"),
        (&["-", "--batch", "--watch"], "leave out --batch"),
        (&["--title", "Hi", "--all", "--watch", "--dry-run"], "--dry-run sends nothing"),
        (&["--title", "Hi", "--all"], "no secret of app news"),
    ] {
        let refused = run_with(profiles.path(), &[&["push", "news"], flags].concat(), &[]).await;
        assert!(refused.refused().contains(told), "{flags:?}: {}", refused.err);
    }
}
