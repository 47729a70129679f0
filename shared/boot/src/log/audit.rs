//! Audit events of this process: who does something, and the log of it.

use std::net::IpAddr;

use push_model::{
    audit::{Action, AuditEvent},
    ids::{AppId, SecretName},
    time::UnixMillis,
};
use tracing::info;

use crate::failed_logins::FailedLogins;

/// The log target of audit events, for filters (`info,audit=off`).
pub const TARGET: &str = "audit";

/// An event of this program, done now by the user of the operating system that runs it.
pub fn event_of_user(program: &str, action: Action) -> AuditEvent {
    AuditEvent { user: Some(user()), host: Some(host()), ..event(program, action) }
}

/// An event of this program, done now for a caller of the admin API.
pub fn event_of_key(program: &str, action: Action, key: SecretName, address: IpAddr) -> AuditEvent {
    let (key, address) = (Some(key), Some(address));
    AuditEvent { key, address, host: Some(host()), ..event(program, action) }
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// An event of this program, done now for a caller over the network.
pub fn event(program: &str, action: Action) -> AuditEvent {
    AuditEvent {
        at: UnixMillis::now(),
        action: action.name().to_owned(),
        done: true,
        app: None,
        secret: None,
        message: None,
        client_id: None,
        admin_key: None,
        program: program.to_owned(),
        user: None,
        key: None,
        address: None,
        host: None,
    }
}

/// Writes an event to the log.
pub fn log(event: &AuditEvent) {
    let AuditEvent {
        action,
        done,
        app,
        secret,
        message,
        client_id,
        admin_key,
        program,
        user,
        key,
        address,
        host,
        ..
    } = event;
    info!(
        target: TARGET,
        action,
        done,
        app = app.as_ref().map(tracing::field::display),
        secret = secret.as_deref(),
        message_id = message.as_ref().map(tracing::field::display),
        client_id = client_id.as_ref().map(tracing::field::display),
        admin_key = admin_key.as_ref().map(tracing::field::display),
        program,
        user,
        key = key.as_ref().map(tracing::field::display),
        address = address.as_ref().map(tracing::field::display),
        host,
        "audit"
    );
}

/// The failed logins that a line of the log counts together: one line for each would let a client
/// fill the log.
#[derive(Debug, Clone, Copy)]
pub enum LoginsOf<'a> {
    /// Requests with a wrong secret for this app, or with one that lacks the scope of the call.
    OfApp(&'a AppId),
    /// Requests for apps that are not named, including those that do not exist.
    OfOtherApps,
    /// MQTT clients.
    OfMqttClients,
    /// Callers that ask as an MQTT broker does, without the secret of brokers.
    OfBrokers,
    /// Callers of the admin API without a valid key.
    OfAdminApi,
}

/// Writes to the log how many logins failed since the last such line, and from where; no line if none did.
pub fn log_failed_logins(of: LoginsOf<'_>, failed: &FailedLogins, program: &str) {
    if failed.count == 0 {
        return;
    }
    let (count, from) = (failed.count, failed.to_string());
    let from = (!from.is_empty()).then_some(from);
    let (app, by) = match of {
        LoginsOf::OfApp(app) => (Some(app), None),
        LoginsOf::OfOtherApps => (None, None),
        LoginsOf::OfMqttClients => (None, Some("mqtt_client")),
        LoginsOf::OfBrokers => (None, Some("broker")),
        LoginsOf::OfAdminApi => (None, Some("admin_api")),
    };
    info!(
        target: TARGET,
        action = "login_failed",
        app = app.map(tracing::field::display),
        by,
        count,
        from,
        program,
        runbook = "logins-fail",
        "audit"
    );
}

/// The user by the process's number, which the environment cannot change; the name is looked up in
/// /etc/passwd, where users of a directory service are not.
fn user() -> String {
    let number = rustix::process::getuid().as_raw().to_string();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    name_of(&number, &passwd).unwrap_or(&format!("uid {number}")).to_owned()
}

fn name_of<'a>(number: &str, passwd: &'a str) -> Option<&'a str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_named_by_the_number_of_the_process() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nbroken\nalice:x:1000:100::/home/a:/bin/sh\n";
        assert_eq!(name_of("1000", passwd), Some("alice"));
        assert_eq!(name_of("100", passwd), None);
        let event = event_of_user("pushctl", Action::AppCreated);
        assert!(!event.user.unwrap().is_empty() && !event.host.unwrap().is_empty());
    }
}
