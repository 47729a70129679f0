//! Reads from an error of Redis what became of the request: judged by the error's code and by
//! whether the request was sent, never by the error's text.
//!
//! Redis 7 appends the name of the script to every error that is raised inside one, so the text of
//! an error cannot be compared, and a new release may have codes that are not known here. An
//! unknown code is not taken for corrupt data: the caller tries again. Redis 6 gives the code `ERR`
//! to whatever a command inside a script raises; that is tried again as well.

use std::io;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::{IndexError, Refusal, RefusalReason};

/// The code with which our scripts report unreadable data.
pub const CORRUPT: &str = "CORRUPT";

/// The code with which our scripts report data that another version of this program wrote.
pub const OTHER_VERSION: &str = "OTHERVERSION";

/// A request that failed.
#[derive(Debug, Clone)]
pub struct Failure {
    error: RedisError,
    /// True if the server may have received the request.
    sent: bool,
}

/// The fate of a request, as the code of its error tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// The server turned the request down before doing anything.
    Refused(RefusalReason),
    /// This program did not write the stored data.
    Corrupt,
    /// A code that is not known here.
    Unknown,
}

impl Failure {
    /// There was no connection, or none could be made.
    pub(in crate::redis) fn before_sending(error: RedisError) -> Self {
        Self { error, sent: false }
    }

    /// The request was handed to a connection.
    pub(in crate::redis) fn after_sending(error: RedisError) -> Self {
        Self { error, sent: true }
    }

    /// Returns true if the server does not know the script that was called.
    pub(in crate::redis) fn is_unknown_script(&self) -> bool {
        self.error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
    }

    /// Returns true if a new connection can help: the old one is broken, or leads to a node that is
    /// no longer the master or no longer has the keys. A transaction that met a redirection fails
    /// with `EXECABORT`, which does not name the new node.
    pub(in crate::redis) fn blames_connection(&self) -> bool {
        self.is_timeout()
            || self.error.is_unrecoverable_error()
            || self.error.kind() == ErrorKind::Io
            || self.is_of_wrong_node()
    }

    /// Returns true if the node answered that it is not the master, or no longer has the keys.
    pub(in crate::redis) fn is_of_wrong_node(&self) -> bool {
        let wrong_node = [ServerErrorKind::ReadOnly, ServerErrorKind::ExecAbort];
        matches!(self.error.kind(), ErrorKind::Server(kind) if wrong_node.contains(&kind))
    }

    /// Returns true if the server could not be reached, or gave no answer.
    pub(in crate::redis) fn is_silence(&self) -> bool {
        self.error.kind() == ErrorKind::Io
    }

    /// The same failure of a request that came before this one, so that this one was never sent.
    pub(in crate::redis) fn before(self) -> Self {
        Self { sent: false, ..self }
    }

    pub(in crate::redis) fn is_timeout(&self) -> bool {
        self.error.is_timeout()
    }

    /// Returns which node the cluster says has the keys.
    pub(in crate::redis) fn redirection(&self) -> Option<Redirection<'_>> {
        match self.error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => Some(Redirection::Moved),
            ErrorKind::Server(ServerErrorKind::Ask) => {
                let (host, port) = self.error.redirect_node()?.0.rsplit_once(':')?;
                Some(Redirection::Ask { host, port: port.parse().ok()? })
            }
            _ => None,
        }
    }

    fn code(&self) -> Option<String> {
        // The error of a pipeline has no code of its own, only one for each command that failed.
        self.error.code().map(str::to_owned).or_else(|| {
            let errors = self.error.clone().into_server_errors()?;
            errors.first().map(|(_, error)| error.code().to_owned())
        })
    }
}

pub(super) fn timed_out() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

/// An answer of a cluster that names another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) enum Redirection<'a> {
    /// For good: the client reads the slot map of the cluster again.
    Moved,
    /// For this request only, while the keys are being moved.
    Ask { host: &'a str, port: u16 },
}

impl From<Failure> for IndexError {
    fn from(failure: Failure) -> Self {
        let Failure { error, sent } = &failure;
        let meaning = failure.code().map_or(Meaning::Unknown, |code| meaning(&code));
        match (meaning, error.kind()) {
            (Meaning::Refused(reason), _) => {
                Self::Refused(Box::new(Refusal { reason, text: error.to_string() }))
            }
            (_, ErrorKind::Parse) if !*sent => {
                let text = "what answers there does not speak the protocol of Redis".to_owned();
                Self::Unreachable(Box::new(Refusal { reason: RefusalReason::OtherProtocol, text }))
            }
            // The client gives this kind to the refusals of AUTH and HELLO, and drops their code.
            (_, ErrorKind::AuthenticationFailed) => {
                let reason = RefusalReason::Login;
                Self::Unreachable(Box::new(Refusal { reason, text: error.to_string() }))
            }
            (Meaning::Corrupt, _) | (_, ErrorKind::UnexpectedReturnType) => {
                Self::Corrupt(error.to_string())
            }
            // The request never left this process.
            (_, ErrorKind::ClusterConnectionNotFound | ErrorKind::Client) => {
                Self::Unreachable(Box::new(failure.error))
            }
            _ if *sent => Self::Unsure(Box::new(failure.error)),
            _ => Self::Unreachable(Box::new(failure.error)),
        }
    }
}

fn meaning(code: &str) -> Meaning {
    Meaning::Refused(match code {
        "WRONGTYPE" | CORRUPT => return Meaning::Corrupt,
        "READONLY" | "MASTERDOWN" => RefusalReason::NotMaster,
        "NOREPLICAS" => RefusalReason::FewReplicas,
        "OOM" => RefusalReason::NoMemory,
        "MISCONF" => RefusalReason::NoDisk,
        "LOADING" | "BUSY" | "UNKILLABLE" | "NOSCRIPT" => RefusalReason::Busy,
        // Slots that are not served, or keys that are at another node or being moved.
        "CLUSTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK" | "EXECABORT" => RefusalReason::Cluster,
        OTHER_VERSION => RefusalReason::OtherVersion,
        "NOAUTH" | "WRONGPASS" | "DENIED" => RefusalReason::Login,
        "NOPERM" => RefusalReason::Permission,
        _ => return Meaning::Unknown,
    })
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    /// The text that Redis 7 appends to every error that is raised inside a script.
    const IN_A_SCRIPT: &str =
        " script: 8e1c0b1d3c1b6f3c0b0e2d9a7f0d8c1b2a3f4e5d, on @user_script:1.";

    fn server_error(line: &str) -> RedisError {
        let answer = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        answer.extract_error().unwrap_err()
    }

    fn kind(failure: Failure) -> &'static str {
        match IndexError::from(failure) {
            IndexError::Refused(_) => "refused",
            IndexError::Unreachable(_) => "unreachable",
            IndexError::Unsure(_) => "unsure",
            IndexError::Corrupt(_) => "corrupt",
        }
    }

    #[test]
    fn an_error_is_judged_by_its_code_also_if_it_was_raised_inside_a_script() {
        let refusals = [
            "READONLY You can't write against a read only replica.",
            "NOREPLICAS Not enough good replicas to write.",
            "OOM command not allowed when used memory > 'maxmemory'.",
            "MISCONF Redis is configured to save RDB snapshots, but …",
            "LOADING Redis is loading the dataset in memory",
            "BUSY Redis is busy running a script.",
            "UNKILLABLE Sorry the script already executed write commands",
            "MASTERDOWN Link with MASTER is down",
            "CLUSTERDOWN The cluster is down",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "MOVED 3999 127.0.0.1:6381",
            "ASK 3999 127.0.0.1:6381",
            "EXECABORT Transaction discarded",
            "NOAUTH Authentication required.",
            "NOPERM this user has no permissions",
            "WRONGPASS invalid username-password pair",
        ];
        for line in refusals {
            for line in [line.to_owned(), format!("{line}{IN_A_SCRIPT}")] {
                assert_eq!(kind(Failure::after_sending(server_error(&line))), "refused", "{line}");
                assert_eq!(kind(Failure::before_sending(server_error(&line))), "refused", "{line}");
            }
        }
        for line in ["WRONGTYPE Operation against a key", "CORRUPT a record"] {
            for line in [line.to_owned(), format!("{line}{IN_A_SCRIPT}")] {
                assert_eq!(kind(Failure::after_sending(server_error(&line))), "corrupt", "{line}");
            }
        }
    }

    #[test]
    fn a_refusal_says_by_its_code_what_an_operator_has_to_do() {
        for (line, expected) in [
            ("READONLY You can't write", RefusalReason::NotMaster),
            (
                "NOPERM User a has no permissions to run the 'set' command",
                RefusalReason::Permission,
            ),
            ("NOPERM a READONLY text", RefusalReason::Permission),
            ("OOM command not allowed", RefusalReason::NoMemory),
            ("MISCONF Redis is configured to save", RefusalReason::NoDisk),
            ("LOADING Redis is loading", RefusalReason::Busy),
            ("NOAUTH Authentication required.", RefusalReason::Login),
        ] {
            let error = IndexError::from(Failure::after_sending(server_error(line)));
            let refusal = Refusal::of(&error).unwrap();
            assert_eq!(refusal.reason, expected, "{line}");
            let (_, text) = line.split_once(' ').unwrap();
            assert!(refusal.text.contains(text), "{refusal}");
        }
        let wrong = RedisError::from((ErrorKind::AuthenticationFailed, "wrong"));
        let error = IndexError::from(Failure::before_sending(wrong));
        assert_eq!(Refusal::of(&error).map(|refusal| refusal.reason), Some(RefusalReason::Login));
    }

    #[test]
    fn a_request_with_an_unknown_error_may_pass_and_may_have_happened_if_it_was_sent() {
        for line in [
            "ERR unknown".to_owned(),
            format!("ERR user_script:1: attempt to index a nil value{IN_A_SCRIPT}"),
            "NEWCODE of a later release".to_owned(),
        ] {
            assert_eq!(kind(Failure::after_sending(server_error(&line))), "unsure", "{line}");
            assert_eq!(kind(Failure::before_sending(server_error(&line))), "unreachable", "{line}");
        }
        let broken = || RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(kind(Failure::after_sending(broken())), "unsure");
        assert_eq!(kind(Failure::before_sending(broken())), "unreachable");
        let no_node = RedisError::from((ErrorKind::ClusterConnectionNotFound, "no node"));
        assert_eq!(kind(Failure::after_sending(no_node)), "unreachable");
    }

    #[test]
    fn a_pipeline_is_judged_by_its_first_failed_command() {
        let failed = |line: &str| match server_error(line).try_into() {
            Ok(error) => Value::ServerError(error),
            Err(error) => panic!("{error}"),
        };
        let answers = Value::Array(vec![Value::Nil, failed("OOM"), failed("WRONGTYPE x")]);
        let error = answers.extract_error().unwrap_err();
        assert_eq!(kind(Failure::after_sending(error)), "refused");
    }

    #[test]
    fn a_redirection_names_its_node() {
        let of = |line: &str| Failure::after_sending(server_error(line));
        assert_eq!(of("MOVED 1 h:6381").redirection(), Some(Redirection::Moved));
        let ask = of("ASK 1 ::1:6381");
        assert_eq!(ask.redirection(), Some(Redirection::Ask { host: "::1", port: 6381 }));
        assert_eq!(of("ASK").redirection(), None);
        assert_eq!(of("TRYAGAIN").redirection(), None);
    }
}
