//! The permissions of MQTT clients, as rules that brokers read: the form of the `acl`
//! claim of EMQX since 5.5 and of RMQTT since 0.8, and of EMQX's HTTP authentication since 5.8.
//!
//! Both brokers take the first rule that fits. `eq ` makes them compare the topic filter as text:
//! without it a rule for one topic would be a pattern, and they would look for placeholders in it.
//! The rule for `$SYS` is there because `#` does not match topics that begin with `$` (MQTT 5,
//! section 4.7.2).

use push_model::mqtt::MqttDevice;
use serde::Serialize;

/// One rule.
#[derive(Debug, Serialize)]
pub struct Rule {
    permission: &'static str,
    action: &'static str,
    topic: String,
}

/// A device: to subscribe to its own topic, and nothing else.
pub fn of_device(device: &MqttDevice) -> [Rule; 3] {
    with_denial("subscribe", format!("eq {}", device.topic()))
}

/// The workers: to publish to every device's topic, and nothing else.
pub fn of_workers() -> [Rule; 3] {
    with_denial("publish", "push/#".to_owned())
}

fn with_denial(action: &'static str, topic: String) -> [Rule; 3] {
    let deny = |topic: &str| Rule { permission: "deny", action: "all", topic: topic.to_owned() };
    [Rule { permission: "allow", action, topic }, deny("$SYS/#"), deny("#")]
}
