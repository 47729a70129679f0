//! The commands that let the service in where RabbitMQ refuses it.

use std::error::Error;

use push_boot::engines::QueueUrl;
use push_queue::AccessRefused;

/// Returns the `rabbitmqctl` commands for the user and the virtual host of this URL, if the error is
/// RabbitMQ's refusal of one of them.
pub fn rabbitmq_commands(error: &(dyn Error + 'static), url: &QueueUrl) -> Option<String> {
    AccessRefused::of(error)?;
    let (login, vhost) = url.login_and_vhost()?;
    let user = login.expose().split(':').next().unwrap_or_default();
    Some(commands(&quoted(user), &quoted(&vhost)))
}

fn commands(user: &str, vhost: &str) -> String {
    format!(
        "where RabbitMQ runs:\n  \
         rabbitmqctl add_user {user}              # or: rabbitmqctl change_password {user}\n  \
         rabbitmqctl add_vhost {vhost}\n  \
         rabbitmqctl set_permissions --vhost {vhost} {user} '.*' '.*' '.*'"
    )
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_name_user_and_virtual_host_and_a_shell_reads_them_as_they_are() {
        let text = commands(&quoted("push"), &quoted("/"));
        assert!(text.contains("set_permissions --vhost / push '.*' '.*' '.*'"), "{text}");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's; rm"), r"'it'\''s; rm'");
        assert_eq!(quoted(""), "''");
    }
}
