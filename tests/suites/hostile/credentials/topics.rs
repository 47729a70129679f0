//! A device reads its own topic and sends nothing; workers send and read nothing.

use serde_json::json;

use super::{
    DEVICE, JSON, SECRET,
    asking::{BROKERS, Broker, Service, delivery},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_rmqtt_changes_between_its_questions_opens_no_other_topic() {
    let service = Service::that_brokers_may_ask().await;
    let own = service.token("2");
    // `rmqtt-auth-http` replaces `%A` also in the name that the client gave: with nothing at the
    // login, and with the kind of access when the client subscribes.
    let asked = |kind: &str| "news:%A2".replace("%A", kind);
    let login = Broker::Rmqtt.connect(&asked(""), &asked(""), &own);
    let (_, body) = service.ask_with(SECRET, Broker::Rmqtt, &login).await;
    assert!(body.contains(r#""topic":"eq push/news/2""#), "{body}");
    let access = Broker::Rmqtt.access(&asked("1"), &asked("1"), false, "push/news/12");
    assert!(!service.ask(Broker::Rmqtt, &access).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_a_broker_that_asks_a_device_reads_its_own_topic_and_the_workers_send() {
    let service = Service::that_brokers_may_ask().await;
    for broker in BROKERS {
        let device = |publish, topic: &str| broker.access(DEVICE, DEVICE, publish, topic);
        // RMQTT has the rules from the login.
        let asks = !matches!(broker, Broker::Rmqtt);
        let own = service.ask(broker, &device(false, "push/news/phone:1")).await;
        assert_eq!(own, asks, "{broker:?}");
        for topic in [
            "push/news/phone:2",
            "push/other/phone:1",
            "push/news/+",
            "push/#",
            "#",
            "+/+/+",
            "$share/g/push/news/phone:1",
            "$SYS/#",
            "",
            "push/news/phone:1/#",
        ] {
            assert!(!service.ask(broker, &device(false, topic)).await, "{broker:?} reads {topic}");
        }
        for topic in ["push/news/phone:1", "push/other/phone:1", "anything"] {
            assert!(!service.ask(broker, &device(true, topic)).await, "{broker:?} sends {topic}");
        }
        let taken_over = broker.access("news:phone:2", DEVICE, false, "push/news/phone:1");
        assert!(!service.ask(broker, &taken_over).await, "{broker:?}");

        let worker = |publish, topic: &str| broker.access("w-1", "worker", publish, topic);
        assert!(service.ask(broker, &worker(true, "push/news/phone:1")).await, "{broker:?}");
        assert!(!service.ask(broker, &worker(true, "other/topic")).await, "{broker:?}");
        assert!(!service.ask(broker, &worker(false, "push/#")).await, "{broker:?}");
    }
    for username in [DEVICE, "worker"] {
        let question = ("superuser", JSON, json!({ "username": username }).to_string());
        assert!(!service.ask(Broker::Mosquitto, &question).await, "{username} is no superuser");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mosquitto_delivers_to_a_device_what_is_of_its_own_topic_only() {
    let service = Service::that_brokers_may_ask().await;
    let delivers = async |client_id: &str, username: &str, topic: &str| {
        service.ask(Broker::Mosquitto, &delivery(client_id, username, topic)).await
    };
    assert!(delivers(DEVICE, DEVICE, "push/news/phone:1").await);
    for topic in ["push/news/phone:2", "push/other/phone:1", "push/news", "$SYS/uptime", ""] {
        assert!(!delivers(DEVICE, DEVICE, topic).await, "{topic}");
    }
    assert!(!delivers("news:phone:2", DEVICE, "push/news/phone:1").await, "another client id");
    assert!(!delivers("w-1", "worker", "push/news/phone:1").await, "workers send only");
}
