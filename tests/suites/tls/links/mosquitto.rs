//! `mqtts://`

use std::time::Duration;

use push_mqtt::{
    MqttUrl,
    handshake::{self, ConnectError},
};
use push_tests::servers::Mosquitto;
use push_tls::{client::ClientTls, failure::TlsFailure};

use super::{Setting, failure, texts};

async fn connect(url: &str, tls: ClientTls) -> Result<(), ConnectError> {
    let url = url.parse::<MqttUrl>().unwrap().with_tls(Some(tls));
    let wanted = Default::default();
    handshake::connect(&url, Duration::from_secs(20), wanted).await.map(drop)
}

#[tokio::test]
async fn mosquitto_is_reached_with_the_right_certificates_and_every_refusal_says_which_is_wrong() {
    let setting = Setting::new();
    let mut server = Mosquitto::start_with_tls(setting.tls()).await.unwrap();
    let url = server.tls_url();

    connect(&url, setting.right()).await.unwrap();

    for (tls, text) in setting.wrong() {
        let error = connect(&url, tls).await.unwrap_err();
        assert!(texts(&error).contains(text), "{}", texts(&error));
    }
    let other_name = url.replace("localhost", "127.0.0.1");
    let error = connect(&other_name, setting.right()).await.unwrap_err();
    assert!(matches!(failure(&error), TlsFailure::WrongName(_)), "{error:?}");

    setting.expire();
    server.restart().await.unwrap();
    let error = connect(&url, setting.right()).await.unwrap_err();
    assert!(matches!(failure(&error), TlsFailure::Expired(_)), "{error:?}");
}
