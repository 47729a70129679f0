//! A device registers again by itself, as docs/how-to/device-tokens.md says.

use push_tests::stack::APP;
use serde_json::{Value, json};

use super::service::Service;

#[tokio::test(flavor = "multi_thread")]
async fn a_device_registers_again_by_itself_and_opens_no_other_record() {
    let service = Service::embedded().await;
    let registered = json!({"attributes": {"plan": "pro"}, "topics": ["f1"], "user_id": "u"});
    let put = service.device("PUT", "mine", registered).await;
    service.device("PUT", "other", json!({"user_id": "u"})).await;
    let bearer = |put: &Value| format!("Bearer {}", put["access"]["token"].as_str().unwrap());
    let mine = format!("device/{APP}/mine");
    let path = format!("/v1/{mine}");
    let (status, put) =
        service.call_as(&bearer(&put), "PUT", &path, &json!({"language": "zh-CN"})).await;
    assert_eq!(status, 200, "{put}");
    let bearer = bearer(&put["result"]);
    let call = async |method: &str, path: &str, body: Value| {
        service.call_as(&bearer, method, &format!("/v1/{path}"), &body).await
    };
    let device = service.device("GET", "mine", Value::Null).await;
    let expected = json!({
        "client_id": "mine", "transport": "mqtt", "language": "zh-cn",
        "attributes": {"plan": "pro"}, "topics": ["f1"], "user_id": "u",
    });
    assert_eq!(device, expected, "what the backend has set stays");

    for method in ["PUT", "PATCH"] {
        let (status, answer) = call(method, &mine, json!({"user_id": "boss"})).await;
        assert_eq!(status, 403, "{method}: {answer}");
    }
    for (method, path, body) in [
        ("GET", format!("device/{APP}/other"), Value::Null),
        ("PUT", format!("device/{APP}/other"), json!({})),
        ("PATCH", format!("device/{APP}/other"), json!({"topics": {"add": ["f1"]}})),
        ("DELETE", format!("device/{APP}/other"), Value::Null),
        ("GET", format!("user/{APP}/u"), Value::Null),
        ("DELETE", format!("user/{APP}/u"), Value::Null),
        ("GET", format!("message/{APP}"), Value::Null),
    ] {
        let (status, answer) = call(method, &path, body).await;
        assert_eq!((status, &answer["status"]), (401, &json!(21004)), "{method} {path}: {answer}");
    }
    assert_eq!(service.device("GET", "other", Value::Null).await["topics"], Value::Null);
}
