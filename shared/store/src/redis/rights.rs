//! Checks that the user of Redis has all rights that the service needs, by trying each command on a key
//! of its own. Otherwise a missing right shows only when a program needs it.

use redis::Cmd;

use super::{
    connection::{Link, reply},
    keys::Keys,
};
use crate::{Finding, IndexError, Refusal, RefusalReason};

const SUBJECT: &str = "redis rights";

/// The key, in [`ON_KEYS`].
const KEY: &str = "KEY";

/// The commands that programs and their scripts run on keys. It does not matter whether the key holds
/// the type that a command expects. The last one removes the key.
const ON_KEYS: [&str; 46] = [
    "SET KEY 1 EX 60",
    "GETBIT KEY 0",
    "SETBIT KEY 0 1",
    "LSET KEY 0 1",
    "HRANDFIELD KEY 1 WITHVALUES",
    "PEXPIRE KEY 60000",
    "GET KEY",
    "MGET KEY",
    "GETRANGE KEY 0 0",
    "SETRANGE KEY 0 1",
    "APPEND KEY 1",
    "STRLEN KEY",
    "EXISTS KEY",
    "EXPIRE KEY 60",
    "PTTL KEY",
    "MEMORY USAGE KEY",
    "PEXPIREAT KEY 1",
    "MSET KEY 1",
    "UNLINK KEY",
    "HSET KEY 1 1",
    "HSETNX KEY 1 1",
    "HINCRBY KEY 1 1",
    "HGET KEY 1",
    "HMGET KEY 1",
    "HGETALL KEY",
    "HEXISTS KEY 1",
    "HKEYS KEY",
    "HLEN KEY",
    "HDEL KEY 1",
    "RPUSH KEY 1",
    "LPUSH KEY 1",
    "LRANGE KEY 0 0",
    "LINDEX KEY 0",
    "LLEN KEY",
    "LREM KEY 1 2",
    "LTRIM KEY 0 0",
    "RPOP KEY",
    "SADD KEY 1",
    "ZADD KEY 0 1",
    "ZREM KEY 1",
    "ZCARD KEY",
    "ZREVRANGEBYLEX KEY + -",
    "ZREMRANGEBYRANK KEY 1 0",
    "HSCAN KEY 0",
    "EXPIRE KEY 60",
    "DEL KEY",
];

/// The commands without a key. The server does not have the script.
const OTHERS: [&str; 4] =
    ["TIME", "INFO server", "EVAL return 0", "EVALSHA 0000000000000000000000000000000000000000 0"];

/// Returns a finding that names the missing rights and the rule that gives them; `None` if all are there
/// or the server does not answer, which other checks report.
pub(super) async fn missing(link: &Link, keys: &Keys) -> Option<Finding> {
    let key = keys.rights_probe();
    let on_keys = refused(link, &ON_KEYS, &key).await?;
    let others = refused(link, &OTHERS, &key).await?;
    let all_on_keys = ON_KEYS.iter().all(|line| on_keys.contains(&name(line)));
    let mut rights = Vec::new();
    let mut lacks = Vec::new();
    if all_on_keys {
        let pattern = keys.pattern();
        lacks.push(format!("use no key like {pattern}"));
        rights.push(format!("~{pattern}"));
    }
    let commands = if all_on_keys { others } else { [on_keys, others].concat() };
    if !commands.is_empty() {
        lacks.push(format!("not run {}", commands.join(", ")));
        rights.extend(commands.iter().map(|name| format!("+{name}")));
    }
    if rights.is_empty() {
        return None;
    }
    let user = link.read(redis::cmd("ACL").arg("WHOAMI")).await.and_then(reply::text);
    let user = user.unwrap_or_else(|_| "NAME".to_owned());
    let detail = format!("the user {user} may {}", lacks.join(", and "));
    let mend = format!(
        "`ACL SETUSER {user} {}`, and the same line in the file of users",
        rights.join(" ")
    );
    Some(Finding::error(SUBJECT, detail, mend))
}

/// The name of a command as a rule of an ACL has it.
fn name(line: &str) -> String {
    let mut words = line.split(' ');
    let command = words.next().unwrap_or_default().to_lowercase();
    match (command.as_str(), words.next()) {
        ("memory", Some(sub)) => format!("{command}|{}", sub.to_lowercase()),
        _ => command,
    }
}

/// The commands that the user may not run, each once; none if the server does not answer.
async fn refused(link: &Link, lines: &[&str], key: &str) -> Option<Vec<String>> {
    let mut refused = Vec::new();
    for line in lines {
        match link.read(&command(line, key)).await {
            Err(error @ (IndexError::Refused(_) | IndexError::Unsure(_))) => {
                let reason = Refusal::of(&error).map(|refusal| refusal.reason);
                if reason == Some(RefusalReason::Permission) && !refused.contains(&name(line)) {
                    refused.push(name(line));
                }
            }
            Err(IndexError::Unreachable(_)) => return None,
            // The key holds something of another type.
            Ok(_) | Err(IndexError::Corrupt(_)) => {}
        }
    }
    Some(refused)
}

fn command(line: &str, key: &str) -> Cmd {
    let mut words = line.split(' ');
    let mut command = redis::cmd(words.next().unwrap_or_default());
    for word in words {
        command.arg(if word == KEY { key } else { word });
    }
    command
}
