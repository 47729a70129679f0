//! Other commands during a move: a second move, an import, and an operator who takes the app back.
//! In each case the app is in service in one store only, and a loss of devices is always reported.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use push_tests::{
    eventually,
    process::{Output, Process},
    redis_url,
    service::{built, pushctl_output},
    stack::{APP, DEADLINE},
};
use serde_json::json;

use super::support::{Embedded, crowd, error, exported, json, refused, run};

#[tokio::test(flavor = "multi_thread")]
async fn of_two_moves_at_once_one_ends_and_the_app_arrives_whole() {
    let store = Embedded::with_devices(&crowd(20_000)).await;
    let flags = store.move_to(&redis_url());
    let (one, other) = tokio::join!(run(&flags), run(&flags));
    let ended: Vec<_> = [&one, &other].into_iter().filter(|ran| ran.status.success()).collect();
    assert!(!ended.is_empty(), "{} {}", error(&one), error(&other));
    for ran in [&one, &other].into_iter().filter(|ran| !ran.status.success()) {
        let text = error(ran);
        let expected = ["has taken this over", "at the target meanwhile", "already"];
        assert!(expected.iter().any(|expected| text.contains(expected)), "{text}");
    }
    let url = redis_url();
    let target = ["--index-url", &url, "--namespace", &store.namespace];
    let shown =
        json(&pushctl_output(&[&target[..], &["app", "show", APP, "--json"]].concat()).await);
    assert_eq!((&shown["devices"], &shown["disabled"]), (&json!(20_000), &json!(false)), "{shown}");
    let directory = store.folder.path().to_str().unwrap();
    let here = exported(&["--data-dir", directory, "--namespace", &store.namespace]).await;
    assert_eq!(exported(&target).await, here);
}

/// Waits until the app is marked in the store that it leaves.
async fn leaves(store: &Embedded) {
    eventually("the app leaves", DEADLINE, async || {
        let listed = store.pushctl(&["app", "list"]).await;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        if listed.contains("moved") { Ok(()) } else { Err(listed) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_that_is_taken_back_during_its_move_is_in_service_in_one_store_only() {
    let store = Embedded::with_devices(&crowd(100)).await;
    let mut flags = store.move_to(&redis_url());
    // Time in which the operator changes his mind.
    let notice = flags.iter().position(|flag| flag == "--notice").unwrap();
    flags[notice + 1] = "8s".to_owned();
    let log = store.folder.path().join("moves");
    let mut command = Command::new(built("pushctl"));
    command.args(&flags);
    let mut moves = Process::spawn(&command, Output::Log(&log), None).unwrap();
    leaves(&store).await;
    let text = refused(&store.pushctl(&["app", "enable", APP]).await);
    assert!(text.contains("add --although-moved"), "{text}");
    let enable = ["app", "enable", APP, "--although-moved"];
    assert!(store.pushctl(&enable).await.status.success());
    let status = eventually("the move ends", DEADLINE, async || {
        moves.ended().unwrap().ok_or_else(|| "it runs".to_owned())
    })
    .await;
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(!status.success() && text.contains("taken back into service"), "{text}");
    let url = redis_url();
    let show = ["--index-url", &url, "--namespace", &store.namespace, "app", "show", APP];
    assert!(refused(&pushctl_output(&show).await).contains("is on its way here"));
    let here = json(&store.pushctl(&["app", "show", APP, "--json"]).await);
    assert_eq!((&here["disabled"], &here["devices"]), (&json!(false), &json!(100)), "{here}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_a_move_supersedes_says_that_its_devices_are_not_in_the_new_store() {
    let store = Embedded::with_devices(&crowd(10)).await;
    let directory = store.folder.path().to_str().unwrap();
    let mut import = Command::new(built("pushctl"))
        .args(["--data-dir", directory, "--namespace", &store.namespace])
        .args(["device", "import", APP, "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = import.stdin.take().unwrap();
    writeln!(input, r#"{{"client_id":"early","transport":"discard"}}"#).unwrap();
    input.flush().unwrap();
    // Its audit event comes last, so nothing but the process says that it has begun.
    eventually("the import has opened the store", DEADLINE, async || {
        let files = format!("/proc/{}/fd", import.id());
        let open = std::fs::read_dir(files)
            .unwrap()
            .filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        if open.into_iter().any(|file| file == store.file()) {
            Ok(())
        } else {
            Err("it has not".to_owned())
        }
    })
    .await;
    assert!(run(&store.move_to(&redis_url())).await.status.success());
    writeln!(input, r#"{{"client_id":"late","transport":"discard"}}"#).unwrap();
    drop(input);
    let ended =
        tokio::task::spawn_blocking(move || import.wait_with_output()).await.unwrap().unwrap();
    let text = refused(&ended);
    assert!(text.contains("import the whole file in its new store"), "{text}");
    assert!(text.contains("has moved from here to redis://"), "{text}");
}
