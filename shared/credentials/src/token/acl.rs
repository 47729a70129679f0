//! The rules of a token: the form that EMQX reads since 5.5 and RMQTT since 0.8.
//!
//! `eq ` makes both brokers compare the topic filter as text. Without it a rule for one topic would
//! be a pattern, and the brokers would look for placeholders in it.

use push_model::mqtt::MqttDevice;
use serde::Serialize;

/// One rule. Both brokers take the first one that fits.
#[derive(Debug, Serialize)]
pub(super) struct Rule {
    permission: &'static str,
    action: &'static str,
    topic: String,
}

/// Subscribe to the device's own topic, and nothing else.
pub(super) fn rules(device: &MqttDevice) -> [Rule; 3] {
    let deny = |topic: &str| Rule { permission: "deny", action: "all", topic: topic.to_owned() };
    let own = format!("eq {}", device.topic());
    let allow = Rule { permission: "allow", action: "subscribe", topic: own };
    [allow, deny("$SYS/#"), deny("#")]
}
