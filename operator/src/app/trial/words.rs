//! What came of a trial, and what to do, for a person. Pure.

use std::time::Duration;

use push_model::{device::TransportKind, ids::ClientId};
use push_outbound::NotProcessed;
use push_providers::verdict::{AccountFault, Verdict};
use push_transports::http::Tried;

use super::{
    TrialVerdict,
    remedies::{LATER, REGISTER, SET_AGAIN, of_account, of_device, of_message, of_suspect},
};

/// The text about a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) verdict: TrialVerdict,
    pub(super) code: Option<&'static str>,
    pub(super) found: String,
    pub(super) remedy: Option<String>,
}

impl Said {
    fn good(verdict: TrialVerdict, found: String) -> Self {
        Self { verdict, code: None, found, remedy: None }
    }

    fn bad(verdict: TrialVerdict, found: String, remedy: impl Into<String>) -> Self {
        Self { verdict, code: None, found, remedy: Some(remedy.into()) }
    }
}

/// Describes a trial of an account, or of a message to a device.
pub(super) fn of(kind: TransportKind, device: Option<&ClientId>, tried: &Tried) -> Said {
    let said = match tried {
        Tried::Accepted { status } => accepted(kind, *status),
        Tried::Answered { status, verdict } => answered(kind, device, *status, verdict),
        Tried::NoAuthorization { server, status, fault } => {
            no_authorization(kind, server, *status, *fault)
        }
        Tried::NotSent { server, why } => not_sent(server, why),
        Tried::Unanswered { server, why } => {
            let found = format!("{server}: {why}");
            Said::bad(TrialVerdict::Unanswered, found, LATER)
        }
        Tried::BadAccount(error) => {
            let found = format!("the credential cannot work: {error}");
            Said::bad(TrialVerdict::AccountBroken, found, SET_AGAIN)
        }
        Tried::BadToken(error) => {
            let found = format!("the token of {} {error}", who(device));
            Said::bad(TrialVerdict::Refused, found, REGISTER)
        }
        Tried::Unsendable(verdict) => {
            let found = format!("no request can be made for {}{}", who(device), coded(verdict.code()));
            Said::bad(TrialVerdict::Refused, found, REGISTER)
        }
        Tried::NothingToAsk => Said::good(
            TrialVerdict::Unchecked,
            "the key is good; whether push services accept it shows only with a device, so name one of its \
             client ids"
                .to_owned(),
        ),
    };
    Said { code: tried.code(), ..said }
}

/// Describes a trial that took too long.
pub(super) fn late(kind: TransportKind) -> Said {
    let found = format!("{} did not answer in time", provider(kind));
    Said::bad(TrialVerdict::Unanswered, found, LATER)
}

/// Describes a credential that does not open.
pub(super) fn sealed(problem: &str) -> Said {
    let found = format!("the credential does not open: {problem}");
    let remedy = "name the seal key of the workers with --seal-key, or set the account again";
    Said::bad(TrialVerdict::AccountBroken, found, remedy)
}

/// The provider in a sentence.
fn provider(kind: TransportKind) -> &'static str {
    match kind {
        TransportKind::Fcm => "FCM",
        TransportKind::Apns => "APNs",
        TransportKind::Webpush => "the push service",
        TransportKind::Webhook => "the receiver",
        TransportKind::Mqtt | TransportKind::Discard => "the transport",
    }
}

fn who(device: Option<&ClientId>) -> &str {
    device.map_or("the test", ClientId::as_str)
}

fn coded(code: Option<&str>) -> String {
    code.map_or_else(String::new, |code| format!(" ({code})"))
}

fn accepted(kind: TransportKind, status: u16) -> Said {
    let found = match kind {
        TransportKind::Webhook => format!("the receiver answered the test with {status}"),
        _ => format!("{} accepts the account", provider(kind)),
    };
    Said::good(TrialVerdict::Works, found)
}

fn answered(
    kind: TransportKind,
    device: Option<&ClientId>,
    status: u16,
    verdict: &Verdict,
) -> Said {
    let (provider, who, code) = (provider(kind), who(device), coded(verdict.code()));
    match verdict {
        Verdict::Sent => {
            let found = format!("{provider} took a test notification for {who}");
            Said::good(TrialVerdict::Sent, found)
        }
        Verdict::Gone { .. } => Said::bad(
            TrialVerdict::Gone,
            format!("{provider} says that {who} is gone{code}"),
            "the next push removes it; the device must register again, with a new token",
        ),
        Verdict::DeviceRefused { code: of, .. } if device.is_some() => Said::bad(
            TrialVerdict::Refused,
            format!("{provider} refuses {who}{code}"),
            of_device(kind, of),
        ),
        Verdict::MessageRefused { code: of } if device.is_some() => Said::bad(
            TrialVerdict::Refused,
            format!("{provider} refuses the test notification with status {status}{code}"),
            of_message(kind, of),
        ),
        Verdict::Account(AccountFault::Suspect { code: of }) if device.is_some() => Said::bad(
            TrialVerdict::Refused,
            format!("{provider} refuses {who} or the account with status {status}{code}"),
            of_suspect(kind, of),
        ),
        Verdict::Account(AccountFault::Unavailable { wait }) => {
            unavailable(provider, status, *wait)
        }
        Verdict::Account(
            AccountFault::Renew { code: of }
            | AccountFault::Stop { code: of }
            | AccountFault::Suspect { code: of },
        ) => Said::bad(
            TrialVerdict::AccountBroken,
            format!("{provider} does not accept the account: status {status}{code}"),
            of_account(kind, of),
        ),
        Verdict::DeviceRefused { code: of, .. } | Verdict::MessageRefused { code: of } => {
            Said::bad(
                TrialVerdict::AccountBroken,
                format!("{provider} answered the test with status {status}{code}"),
                of_message(kind, of),
            )
        }
        Verdict::Throttled { wait, .. } => {
            let found = format!("{provider} takes nothing for now (status {status})");
            Said::bad(TrialVerdict::Throttled, found, try_again(*wait))
        }
        Verdict::Reconnect | Verdict::Unavailable { wait: None } => {
            unavailable(provider, status, None)
        }
        Verdict::Unavailable { wait } => unavailable(provider, status, *wait),
    }
}

fn unavailable(provider: &str, status: u16, wait: Option<Duration>) -> Said {
    let found = format!("{provider} fails at the moment (status {status})");
    Said::bad(TrialVerdict::Failing, found, try_again(wait))
}

fn try_again(wait: Option<Duration>) -> String {
    match wait {
        Some(wait) => format!("try again in {} s", wait.as_secs().max(1)),
        None => "try again later".to_owned(),
    }
}

fn no_authorization(kind: TransportKind, server: &str, status: u16, fault: AccountFault) -> Said {
    match fault {
        AccountFault::Unavailable { wait } => {
            let found = format!("{server} gives no access token at the moment (status {status})");
            Said::bad(TrialVerdict::Failing, found, try_again(wait))
        }
        AccountFault::Renew { code }
        | AccountFault::Stop { code }
        | AccountFault::Suspect { code } => Said::bad(
            TrialVerdict::AccountBroken,
            format!("{server} gives no access token for the key: status {status} ({code})"),
            of_account(kind, code),
        ),
    }
}

fn not_sent(server: &str, why: &NotProcessed) -> Said {
    let remedy = match why {
        NotProcessed::Unreachable { error, .. } if error.is_forbidden() => {
            "allow its network with --outbound-allow, for the workers too, or set another URL"
        }
        NotProcessed::Unsendable => SET_AGAIN,
        _ => {
            "look at the name server, the firewall and --outbound-proxy of this machine; a server with a \
             certificate of its own needs --outbound-ca"
        }
    };
    Said::bad(TrialVerdict::Unreachable, format!("{server}: {why}"), remedy)
}

#[cfg(test)]
mod tests {
    use push_providers::{BadAccount, BadToken};

    use super::*;

    fn kinds() -> impl Iterator<Item = TransportKind> {
        TransportKind::ALL.into_iter().filter(|kind| kind.has_provider())
    }

    fn answered(verdict: Verdict) -> Tried {
        Tried::Answered { status: 400, verdict }
    }

    fn all() -> Vec<Tried> {
        let code = "code";
        let verdicts = [
            Verdict::Sent,
            Verdict::Gone { since: None, code },
            Verdict::DeviceRefused { code, suspicious: true },
            Verdict::MessageRefused { code },
            Verdict::Throttled { whom: push_providers::verdict::Whom::Device, wait: None },
            Verdict::Account(AccountFault::Renew { code }),
            Verdict::Account(AccountFault::Suspect { code }),
            Verdict::Account(AccountFault::Unavailable { wait: None }),
            Verdict::Reconnect,
            Verdict::Unavailable { wait: Some(Duration::from_secs(7)) },
        ];
        let mut all: Vec<_> = verdicts.into_iter().map(answered).collect();
        let server = || "https://hook.example:443".to_owned();
        all.extend([
            Tried::Accepted { status: 204 },
            Tried::NoAuthorization {
                server: server(),
                status: 400,
                fault: AccountFault::Stop { code },
            },
            Tried::NotSent { server: server(), why: NotProcessed::Late },
            Tried::Unanswered { server: server(), why: push_outbound::Unanswered::Late },
            Tried::BadAccount(BadAccount { field: "url", problem: "is wrong".to_owned() }),
            Tried::BadToken(BadToken { expected: "must be another one" }),
            Tried::Unsendable(Verdict::DeviceRefused { code, suspicious: false }),
            Tried::NothingToAsk,
        ]);
        all
    }

    #[test]
    fn whatever_does_not_work_says_what_to_do_and_what_works_asks_for_nothing() {
        let client = "phone-1".parse().unwrap();
        for kind in kinds() {
            for (tried, device) in
                all().iter().flat_map(|tried| [(tried, None), (tried, Some(&client))])
            {
                let said = of(kind, device, tried);
                assert_eq!(said.verdict.works(), said.remedy.is_none(), "{said:?}");
                assert!(!said.found.ends_with('.') && !said.found.is_empty(), "{said:?}");
            }
        }
    }

    #[test]
    fn a_refused_device_breaks_no_account_and_a_refused_account_does() {
        let client = "phone-1".parse().unwrap();
        let refused = answered(Verdict::DeviceRefused { code: "BadDeviceToken", suspicious: true });
        let said = of(TransportKind::Apns, Some(&client), &refused);
        assert_eq!(said.verdict, TrialVerdict::Refused);
        assert_eq!(said.found, "APNs refuses phone-1 (BadDeviceToken)");
        assert!(said.remedy.unwrap().contains("--sandbox"));
        let fault = AccountFault::Stop { code: "InvalidProviderToken" };
        let said = of(TransportKind::Apns, Some(&client), &answered(Verdict::Account(fault)));
        assert_eq!(
            (said.verdict, said.code),
            (TrialVerdict::AccountBroken, Some("InvalidProviderToken"))
        );
        assert!(said.remedy.unwrap().contains("--team-id"));
    }

    #[test]
    fn a_receiver_that_does_not_answer_2xx_to_a_test_is_broken() {
        for code in ["unauthorized", "not_found", "client_error"] {
            let tried = answered(Verdict::MessageRefused { code });
            let said = of(TransportKind::Webhook, None, &tried);
            assert_eq!(said.verdict, TrialVerdict::AccountBroken, "{code}");
            assert!(said.remedy.unwrap().contains("2xx"), "{code}");
        }
    }
}
