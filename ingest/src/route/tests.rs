//! Every path of the contract, and some that are none.

use super::*;

fn of<'a>(method: &Method, path: &'a str) -> Result<Route<'a>, Rejection> {
    Route::of(method, path)
}

#[test]
fn a_push_without_an_app_is_still_a_push() {
    for path in ["/v1/message/push", "/v1/message/push/"] {
        assert_eq!(of(&Method::POST, path), Ok(Route::Push { app: "".into() }), "{path}");
    }
}

#[test]
fn unknown_paths_and_methods_are_told_apart() {
    for path in [
        "/",
        "",
        "*",
        "/v1",
        "/v1/",
        "/v2/message/push/a",
        "/v1/device",
        "/v1/device/",
        "/v1/user/a",
        "/v1/user/a/b/c",
        "/v1/message/push/a/b",
        "/v1/message/push/a/batch/",
        "/v1/message/push/a/b/batch",
        "/v1/message/a/b/batch",
        "/v1/device/a/b/c",
        "/v1/device/a/b/batch",
        "/V1/message/push/a",
    ] {
        assert_eq!(of(&Method::POST, path), Err(Rejection::NoSuchPath), "{path}");
    }
    assert_eq!(of(&Method::GET, "/v1/message/push/a"), Err(Rejection::NoSuchMethod(POST_ONLY)));
    assert_eq!(of(&Method::POST, "/v1/device/a/b"), Err(Rejection::NoSuchMethod(DEVICE_METHODS)));
    assert_eq!(of(&Method::PUT, "/v1/message/a/b"), Err(Rejection::NoSuchMethod(MESSAGE_METHODS)));
}

#[test]
fn each_document_of_the_description_has_a_path() {
    for (path, document) in [
        ("/openapi.json", Document::Apps),
        ("/openapi/brokers.json", Document::Brokers),
        ("/openapi/operations.json", Document::Operations),
    ] {
        assert_eq!(of(&Method::GET, path), Ok(Route::Description(document)), "{path}");
        let refused = Err(Rejection::NoSuchMethod(DESCRIPTION_METHODS));
        assert_eq!(of(&Method::POST, path), refused, "{path}");
    }
    for path in ["/openapi", "/openapi/", "/openapi/apps.json", "/openapi/brokers.json/"] {
        assert_eq!(of(&Method::GET, path), Err(Rejection::NoSuchPath), "{path}");
    }
}

#[test]
fn each_broker_has_paths_of_its_own() {
    use {Broker::*, BrokerQuestion::*};
    for (path, broker, question) in [
        ("/v1/broker/emqx/authenticate", Emqx, Connect),
        ("/v1/broker/emqx/authorize", Emqx, Access),
        ("/v1/broker/rmqtt/auth", Rmqtt, Connect),
        ("/v1/broker/rmqtt/acl", Rmqtt, Access),
        ("/v1/broker/mosquitto/user", Mosquitto, Connect),
        ("/v1/broker/mosquitto/acl", Mosquitto, Access),
        ("/v1/broker/mosquitto/superuser", Mosquitto, Superuser),
    ] {
        for method in [Method::POST, Method::GET] {
            let route = Ok(Route::AskedByBroker(broker, question));
            assert_eq!(of(&method, path), route, "{path}");
        }
    }
    for path in ["/v1/broker/emqx/acl", "/v1/broker/emqx", "/v1/broker/rmqtt/auth/x"] {
        assert_eq!(of(&Method::POST, path), Err(Rejection::NoSuchPath), "{path}");
    }
}

#[test]
fn many_pushes_have_a_path_of_their_own_and_an_app_may_be_named_batch() {
    for (path, app) in [("/v1/message/push/a/batch", "a"), ("/v1/message/push//batch", "")] {
        assert_eq!(of(&Method::POST, path), Ok(Route::PushBatch { app: app.into() }), "{path}");
        assert_eq!(of(&Method::GET, path), Err(Rejection::NoSuchMethod(POST_ONLY)), "{path}");
    }
    let single = Ok(Route::Push { app: "batch".into() });
    assert_eq!(of(&Method::POST, "/v1/message/push/batch"), single);
}

#[test]
fn percent_encoded_characters_are_the_characters() {
    let Ok(Route::GetDevice(resource)) = of(&Method::GET, "/v1/device/a%2Eb/c%3Ad") else {
        panic!("a route to a device");
    };
    assert_eq!((&*resource.app, &*resource.id), ("a.b", "c:d"));
    assert_eq!(
        of(&Method::POST, "/v1/message/push/%FF"),
        Ok(Route::Push { app: "\u{fffd}".into() })
    );
}

#[test]
fn the_messages_of_an_app_have_a_path() {
    for app in ["a", "push", "batch"] {
        let path = format!("/v1/message/{app}");
        let list = Ok(Route::ListMessages { app: app.into() });
        assert_eq!(of(&Method::GET, &path), list, "{path}");
    }
    let delete = of(&Method::DELETE, "/v1/message/a");
    assert_eq!(delete, Err(Rejection::NoSuchMethod(LIST_METHODS)));
    assert_eq!(of(&Method::GET, "/v1/message/"), Err(Rejection::NoSuchPath));
}

#[test]
fn a_device_many_devices_and_a_user_have_paths() {
    let of_app = |id: &'static str| AppResource { app: "a".into(), id: id.into() };
    let (one, many, user) = ("/v1/device/a/b", "/v1/device/a", "/v1/user/a/u%40b%7Cc");
    assert_eq!(of(&Method::PATCH, one), Ok(Route::PatchDevice(of_app("b"))));
    assert_eq!(of(&Method::PATCH, many), Ok(Route::PatchDevices { app: "a".into() }));
    assert_eq!(of(&Method::GET, user), Ok(Route::GetUser(of_app("u@b|c"))));
    assert_eq!(of(&Method::DELETE, user), Ok(Route::DeleteUser(of_app("u@b|c"))));
    let only = |methods| Err(Rejection::NoSuchMethod(methods));
    assert_eq!(of(&Method::GET, many), only(DEVICES_METHODS));
    assert_eq!(of(&Method::PUT, user), only(USER_METHODS));
}

#[test]
fn the_audience_of_an_app_is_counted_with_post_only() {
    for (path, app) in [("/v1/audience/a", "a"), ("/v1/audience/", ""), ("/v1/audience", "")] {
        let count = Ok(Route::CountAudience { app: app.into() });
        assert_eq!(of(&Method::POST, path), count, "{path}");
        assert_eq!(of(&Method::GET, path), Err(Rejection::NoSuchMethod(POST_ONLY)), "{path}");
    }
    assert_eq!(of(&Method::POST, "/v1/audience/a/b"), Err(Rejection::NoSuchPath));
}

#[test]
fn an_app_may_be_named_push() {
    let path = "/v1/message/push/01890000-0000-7000-8000-000000000000";
    assert!(matches!(of(&Method::GET, path), Ok(Route::GetMessage(_))));
    assert!(matches!(of(&Method::POST, path), Ok(Route::Push { .. })));
}
