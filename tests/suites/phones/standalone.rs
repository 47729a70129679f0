//! The standalone form, which makes its own keys that seal, reaches phones as the workers do.

use push_tests::{
    certificates::Authority,
    eventually, free_port,
    phone_server::{Face, PhoneServer},
    service::{Program, pushctl, request},
    stack::{APP, DEADLINE},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{everyone, fcm_token, one_copy_each, service_account};

#[tokio::test(flavor = "multi_thread")]
async fn the_standalone_form_reaches_phones_with_an_account_that_was_set_while_it_runs() {
    let (authority, folder) = (Authority::new(), TempDir::new().unwrap());
    let fcm = PhoneServer::start(Face::Fcm, None).await;
    let tokens = PhoneServer::start(Face::Tokens, Some(&authority.local_server())).await;
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let [http, mqtt] = [(); 2].map(|()| free_port().unwrap());
    let (listen, mqtt_listen, url) = (http.address(), mqtt.address(), fcm.url());
    let flags =
        ["standalone", "--data-dir", data, "--listen", &listen, "--mqtt-listen", &mqtt_listen];
    let outbound = ["--outbound-allow", "127.0.0.0/8", "--outbound-ca"];
    let authority = authority.file().to_str().unwrap();
    let providers = [&outbound[..], &[authority, "--fcm-url", &url]].concat();
    let _program = Program::start_ready("pushctl", &[&flags[..], &providers].concat()).await;

    let made = pushctl(&["--data-dir", data, "app", "create", APP, "--json"]).await;
    let made: Value = serde_json::from_str(&made).unwrap();
    let headers =
        [("authorization", made["secret"].as_str().unwrap()), ("content-type", "application/json")];
    let file = folder.path().join("service-account.json");
    let account = service_account("project", &format!("{}/token", tokens.url()));
    std::fs::write(&file, account.to_string()).unwrap();
    let set = ["--data-dir", data, "app", "transport", "set", APP, "fcm", "--service-account"];
    pushctl(&[&set[..], &[file.to_str().unwrap()]].concat()).await;
    for n in 0..30 {
        let device = json!({"transport": "fcm", "token": fcm_token(n)}).to_string();
        let url = format!("http://{listen}/v1/device/{APP}/phone-{n}");
        let (status, answer) = request("PUT", &url, &headers, &device).await.unwrap();
        assert_eq!(status, 200, "{answer}");
    }
    let url = format!("http://{listen}/v1/message/push/{APP}");
    let (status, answer) = request("POST", &url, &headers, &everyone().to_string()).await.unwrap();
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let id = answer["result"]["message_id"].as_str().unwrap();
    let url = format!("http://{listen}/v1/message/{APP}/{id}");
    eventually("all are sent to", DEADLINE, async || {
        let (_, report) = request("GET", &url, &headers, "").await.unwrap();
        let report: Value = serde_json::from_str(&report).unwrap();
        if report["result"]["sent"] == 30 { Ok(()) } else { Err(report.to_string()) }
    })
    .await;
    one_copy_each(&fcm.record(), 30);
    assert_eq!(tokens.record().requests, 1);
}
