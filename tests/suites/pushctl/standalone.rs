//! The standalone form, and its demo.

use std::{fs, net::TcpListener};

use push_tests::{
    eventually, free_port,
    process::{Output, Process},
    service::{built, request},
};

use crate::pushctl::support::{DEADLINE, Store, run_in};

#[tokio::test]
async fn standalone_says_in_one_line_which_address_is_taken() {
    let store = Store::new();
    let [http, mqtt, ops, admin] = [(); 4].map(|()| free_port().unwrap());
    let addresses = [
        ("--listen", &http),
        ("--mqtt-listen", &mqtt),
        ("--ops-listen", &ops),
        ("--admin-listen", &admin),
    ];
    for (flag, port) in addresses {
        let taken = TcpListener::bind(port.address()).unwrap();
        let flags: Vec<String> = addresses
            .iter()
            .flat_map(|(flag, port)| [(*flag).to_owned(), port.address()])
            .collect();
        let mut command = vec!["standalone", "--log", "error"];
        command.extend(flags.iter().map(String::as_str));
        let data = store.dir().join("data");
        let refused = run_in(&data, &command).await;
        assert!(refused.refused().contains(flag), "{}", refused.err);
        assert!(refused.err.contains(&port.address()), "{}", refused.err);
        assert!(!data.exists(), "nothing is left of a start that failed");
        drop(taken);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_shows_which_device_got_what_and_stays_up_for_the_curl_line() {
    let store = Store::new();
    let [http, mqtt, ops] = [(); 3].map(|()| free_port().unwrap().address());
    let mut command = std::process::Command::new(built("pushctl"));
    command.args(["standalone", "--demo", "--data-dir", store.dir().to_str().unwrap()]);
    // As in a container: a demo may listen unencrypted where others reach it.
    let [http, mqtt] = [http, mqtt].map(|address| address.replace("127.0.0.1", "0.0.0.0"));
    command.args(["--listen", &http, "--mqtt-listen", &mqtt, "--ops-listen", &ops]);
    command.arg("--admin-listen=off");
    let log = store.dir().join("log");
    let mut demo = Process::spawn(&command, Output::Log(&log), None).unwrap();
    let shown = async |what: &str| {
        eventually(what, DEADLINE, async || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            if text.contains(what) { Ok(text) } else { Err(text) }
        })
        .await
    };
    let text = shown("Stop with Ctrl-C").await;
    assert_eq!(text.matches("你好 · A targeted push").count(), 3, "{text}");
    assert_eq!(text.matches("nothing, as it should").count(), 3, "{text}");

    // The curl line is run as it is printed.
    let (_, curl) = text.split_once("curl -sS").unwrap();
    let (curl, _) = curl.split_once("\n\n").unwrap();
    let line = format!("curl -sS{curl}");
    let answer = tokio::process::Command::new("bash").args(["-c", &line]).output().await.unwrap();
    let answer = String::from_utf8(answer.stdout).unwrap();
    assert!(answer.starts_with("{\"status\":200"), "{line}: {answer}");
    eventually("all six devices show it", DEADLINE, async || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        let times = text.matches("received Hello · everyone").count();
        if times == 6 { Ok(()) } else { Err(text) }
    })
    .await;
    let metrics = request("GET", &format!("http://{ops}/metrics"), &[], "").await.unwrap();
    assert!(metrics.1.contains("push_worker_devices_total{outcome=\"sent\""), "{metrics:?}");
    demo.signal_all(rustix::process::Signal::INT);
    let ended = eventually("Ctrl-C ends it", DEADLINE, async || {
        demo.ended().unwrap().ok_or_else(|| "it runs".to_owned())
    })
    .await;
    assert!(ended.success(), "{}", fs::read_to_string(&log).unwrap());
}
