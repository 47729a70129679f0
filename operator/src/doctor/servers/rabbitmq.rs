//! RabbitMQ's own report: its version, and policies that lose messages or change queues.
//!
//! A policy is set at the server, for queues whose names match, and no client sees it. Only the
//! management plugin tells, which the service does not need, so this check is left out unless its
//! URL is given.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use push_boot::{engines::QueueUrl, secret::SecretText};
use push_queue::amqp::queue_names;
use push_store::Finding;
use serde::Deserialize;
use serde_json::Value;

use crate::{doctor::programs::http::client, server::Server};

/// The oldest release with what the service needs of quorum queues.
const MIN_VERSION: (u32, u32) = (3, 10);

/// The time limit for an answer of the management plugin.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most that is read of its answer, in bytes.
const MAX_ANSWER: u64 = 16 * 1024 * 1024;

/// Keys of a policy, and what each does to the service's queues. The other keys (where copies are, how
/// large the log is) are the operator's choice.
const HARMFUL: [(&str, &str); 8] = [
    ("max-length", "drops or refuses pushes when the queue is that long"),
    ("max-length-bytes", "drops or refuses pushes when the queue is that large"),
    ("message-ttl", "drops messages that wait longer"),
    ("expires", "deletes the queue while it is not used, with what is in it"),
    ("overflow", "drops or refuses messages"),
    ("delivery-limit", "drops a message that is delivered again too often"),
    ("dead-letter-exchange", "sends messages elsewhere"),
    ("dead-letter-routing-key", "sends messages elsewhere"),
];

const POLICIES: &str = "queue policies";

/// The management plugin.
#[derive(Debug, Clone)]
pub(in crate::doctor) struct Management {
    /// `http://host:15672`, without user and password.
    pub(in crate::doctor) url: String,
    /// `user:password`, those of the queue's URL.
    pub(in crate::doctor) login: SecretText,
    /// The virtual host of the queues.
    pub(in crate::doctor) vhost: String,
}

impl Management {
    /// Describes the plugin at this URL, for the queues of this queue URL and with its login.
    pub(in crate::doctor) fn of(url: Option<Server>, queue: &QueueUrl) -> Option<Self> {
        let (login, vhost) = queue.login_and_vhost()?;
        Some(Self { url: url?.to_string(), login, vhost })
    }
}

/// A queue, as the plugin describes it.
#[derive(Debug, Deserialize)]
struct Queue {
    name: String,
    #[serde(default)]
    policy: Option<String>,
    #[serde(default)]
    effective_policy_definition: Value,
    #[serde(default)]
    arguments: Value,
}

/// Checks if the version in `RabbitMQ 3.10.8` is one that the service can use.
pub(in crate::doctor) fn version(description: &str) -> Option<Finding> {
    const SUBJECT: &str = "rabbitmq version";
    let text = description.strip_prefix("RabbitMQ ")?;
    let mut parts = text.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let (major, minor) = MIN_VERSION;
    Some(if version >= MIN_VERSION {
        Finding::ok(SUBJECT, text)
    } else {
        let remedy = format!("use {major}.{minor} or later");
        Finding::error(SUBJECT, format!("{text} is too old"), remedy)
    })
}

/// Judges the policies that apply to the queues of this namespace.
pub(in crate::doctor) async fn policies(
    management: Option<Management>,
    namespace: &str,
) -> Vec<Finding> {
    let Some(management) = management else {
        let how = "name RabbitMQ's management plugin with --management";
        return vec![Finding::skipped(POLICIES, how)];
    };
    let url = management.url.clone();
    let asked = tokio::task::spawn_blocking(move || queues(&management)).await;
    let names = queue_names(namespace).unwrap_or_default();
    match asked.map_err(anyhow::Error::from).and_then(|queues| queues) {
        Ok(queues) => judge(&queues, &names),
        Err(error) => vec![Finding::warning(
            POLICIES,
            format!("{url} does not tell them: {error:#}"),
            "check --management and its login",
        )],
    }
}

fn queues(management: &Management) -> anyhow::Result<Vec<Queue>> {
    let Management { url, login, vhost } = management;
    let vhost = percent_encoding::utf8_percent_encode(vhost, percent_encoding::NON_ALPHANUMERIC);
    let login = format!("Basic {}", STANDARD.encode(login.expose()));
    let asked = client(TIMEOUT).get(format!("{url}/api/queues/{vhost}"));
    let answer = asked.header("authorization", login).call();
    let mut answer = answer.context("it does not answer")?;
    ensure!(answer.status().is_success(), "it answers {}", answer.status());
    let body = answer.body_mut().with_config().limit(MAX_ANSWER).read_to_string()?;
    serde_json::from_str(&body).context("its answer is not a list of queues")
}

fn judge(queues: &[Queue], names: &[String]) -> Vec<Finding> {
    // By policy, so that one that applies to all queues is one finding.
    let mut harmful: BTreeMap<(String, &str), Vec<&str>> = BTreeMap::new();
    let ours = queues.iter().filter(|queue| names.contains(&queue.name));
    for queue in ours {
        for (key, _) in HARMFUL {
            let own = queue.arguments.get(format!("x-{key}"));
            if changes(queue.effective_policy_definition.get(key), own) {
                let policy =
                    queue.policy.clone().unwrap_or_else(|| "an operator policy".to_owned());
                harmful.entry((policy, key)).or_default().push(&queue.name);
            }
        }
    }
    if harmful.is_empty() {
        return vec![Finding::ok(POLICIES, "none that drops or moves messages")];
    }
    let describe = |((policy, key), queues): ((String, &str), Vec<&str>)| {
        let does = HARMFUL.iter().find(|(of, _)| *of == key).map_or("", |(_, does)| does);
        let more = queues.len().saturating_sub(1);
        let first = queues.first().copied().unwrap_or_default();
        let and = if more == 0 { String::new() } else { format!(" and {more} more") };
        let remedy = format!(
            "let its pattern leave out the queues of the service, or remove it (`rabbitmqctl \
             clear_policy {policy}`)"
        );
        Finding::error(
            POLICIES,
            format!("{policy} sets {key} on {first}{and}, which {does}"),
            remedy,
        )
    };
    harmful.into_iter().map(describe).collect()
}

/// Returns true if a policy changes what a queue was declared with. The smaller of two numbers is in
/// force, where a negative one is no limit; a text of the declaration goes before that of a policy.
fn changes(policy: Option<&Value>, own: Option<&Value>) -> bool {
    match (policy, own) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(policy), Some(own)) => match (policy.as_i64(), own.as_i64()) {
            (Some(policy), Some(own)) => own < 0 || policy < own,
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use push_store::Level;
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        let of = |text| version(text).unwrap().level;
        assert_eq!([of("RabbitMQ 3.10.8"), of("RabbitMQ 4.0.5")], [Level::Ok; 2]);
        assert_eq!([of("RabbitMQ 3.9.13"), of("RabbitMQ ?")], [Level::Error; 2]);
        assert!(version("SQLite 3.50.0, file /data/queue.sqlite3").is_none());
    }

    #[test]
    fn the_smaller_of_two_limits_is_in_force() {
        let changes = |policy: Value, own: Value| changes(Some(&policy), Some(&own));
        assert!(changes(json!(5), json!(-1)) && changes(json!(5), json!(6)));
        assert!(!changes(json!(6), json!(5)) && !changes(json!("x"), json!("y")));
    }

    #[test]
    fn a_policy_is_harmful_if_it_drops_messages_of_our_queues_and_they_do_not_say_otherwise() {
        let queue = |name: &str, policy: Value, arguments: Value| -> Queue {
            serde_json::from_value(json!({
                "name": name,
                "policy": "short",
                "effective_policy_definition": policy,
                "arguments": arguments
            }))
            .unwrap()
        };
        let names = ["push.jobs".to_owned(), "push.tasks".to_owned()];
        let judged = |queues: &[Queue]| judge(queues, &names);
        let other = queue("elsewhere", json!({"max-length": 1}), json!({}));
        let copies = queue("push.jobs", json!({"target-group-size": 3}), json!({}));
        let own = queue("push.tasks", json!({"overflow": "x"}), json!({"x-overflow": "y"}));
        let none = queue("push.tasks", json!([]), json!({}));
        assert_eq!(judged(&[other, copies, own, none])[0].level, Level::Ok);
        let both = names.clone().map(|name| queue(&name, json!({"max-length": 1}), json!({})));
        let found = judged(&both);
        assert_eq!((found.len(), found[0].level), (1, Level::Error));
        let detail = &found[0].detail;
        assert!(detail.starts_with("short sets max-length on push.jobs and 1 more"), "{detail}");
        assert!(found[0].remedy().unwrap().contains("rabbitmqctl clear_policy short"), "{found:?}");
    }
}
