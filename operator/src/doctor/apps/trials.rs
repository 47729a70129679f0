//! Trying the accounts of all apps at their providers, as `pushctl app transport test` tries one.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use push_credentials::SealFile;
use push_index::Index;
use push_model::{app::App, device::TransportKind};
use push_store::Finding;
use tokio::time::sleep;

use crate::app::trial::{AccountTried, Providers, TrialVerdict};
use crate::doctor::servers::engine::Engine;

const SUBJECT: &str = "account trials";

/// The most accounts that are tried.
const ACCOUNTS_TRIED: usize = 100;
/// The most accounts that are tried at once.
const AT_ONCE: usize = 8;
/// The time after which no further account is tried.
const TRIALS_TIME: Duration = Duration::from_secs(60);

/// What trying accounts needs.
#[derive(Debug)]
pub struct Trials {
    /// The keys that seal the accounts.
    pub seal: Arc<SealFile>,
    /// The connections.
    pub providers: Providers,
}

/// Tries the accounts, unless there is no seal key. What is broken is an error, what may pass is a warning.
pub(in crate::doctor) async fn findings(
    index: &dyn Index,
    engine: &Engine,
    trials: &anyhow::Result<Option<Trials>>,
) -> Vec<Finding> {
    let apps = match index.apps().await {
        Ok(apps) => apps,
        Err(error) => return vec![engine.store_failed(SUBJECT, &error)],
    };
    let apps = apps.iter().filter(|app| app.moved_to.is_none());
    let accounts: Vec<(&App, TransportKind)> =
        apps.flat_map(|app| app.transports.keys().map(move |kind| (app, *kind))).collect();
    if accounts.is_empty() {
        return vec![Finding::ok(SUBJECT, "no app has an account at a provider")];
    }
    let Trials { seal, providers } = match trials {
        Ok(Some(trials)) => trials,
        Ok(None) => {
            let how = "name the seal key of the workers with --seal-key";
            return vec![Finding::skipped(SUBJECT, how)];
        }
        Err(error) => {
            let remedy = "check --seal-key and --outbound-ca, and who may read the files";
            return vec![Finding::error(SUBJECT, format!("{error:#}"), remedy)];
        }
    };
    let tried: Vec<AccountTried> = stream::iter(accounts.iter().take(ACCOUNTS_TRIED))
        .take_until(sleep(TRIALS_TIME))
        .map(|(app, transport)| providers.try_account(app, *transport, seal))
        .buffered(AT_ONCE)
        .collect()
        .await;
    let untried = accounts.len().saturating_sub(tried.len());
    let mut findings: Vec<_> = tried.iter().filter_map(judge).collect();
    findings.push(summary(&tried, untried));
    findings
}

/// Reports an account that does not work.
fn judge(tried: &AccountTried) -> Option<Finding> {
    let AccountTried { app_id, transport, verdict, found, remedy, .. } = tried;
    let subject = format!("account of {app_id} at {}", transport.name());
    let (found, remedy) = (found.clone(), remedy.clone().unwrap_or_default());
    match verdict {
        TrialVerdict::Works | TrialVerdict::Sent | TrialVerdict::Unchecked => None,
        TrialVerdict::Throttled | TrialVerdict::Failing | TrialVerdict::Unanswered => {
            Some(Finding::warning(subject, found, remedy))
        }
        TrialVerdict::Gone
        | TrialVerdict::Refused
        | TrialVerdict::AccountBroken
        | TrialVerdict::Unreachable => Some(Finding::error(subject, found, remedy)),
    }
}

/// Counts the accounts that were tried, and those that were not.
fn summary(tried: &[AccountTried], untried: usize) -> Finding {
    let count = |of: TrialVerdict| tried.iter().filter(|tried| tried.verdict == of).count();
    let mut detail = format!("{} of {} work", count(TrialVerdict::Works), tried.len());
    let unchecked = count(TrialVerdict::Unchecked);
    if unchecked > 0 {
        detail.push_str(&format!(", {unchecked} can be tried with a device only"));
    }
    if untried > 0 {
        detail.push_str(&format!(
            ", and {untried} were not tried: `pushctl app transport test` tries a single one"
        ));
    }
    Finding::ok(SUBJECT, detail)
}

#[cfg(test)]
mod tests {
    use push_store::Level;

    use super::*;

    fn tried(verdict: TrialVerdict) -> AccountTried {
        AccountTried {
            app_id: "shop".parse().unwrap(),
            transport: TransportKind::Apns,
            client_id: None,
            works: verdict.works(),
            verdict,
            code: None,
            found: "found".to_owned(),
            remedy: Some("remedy".to_owned()),
        }
    }

    #[test]
    fn a_broken_account_is_an_error_and_a_failure_that_may_pass_is_a_warning() {
        let level = |verdict| judge(&tried(verdict)).map(|finding| finding.level);
        assert_eq!(level(TrialVerdict::AccountBroken), Some(Level::Error));
        assert_eq!(level(TrialVerdict::Unreachable), Some(Level::Error));
        assert_eq!(level(TrialVerdict::Throttled), Some(Level::Warning));
        assert_eq!(level(TrialVerdict::Works), None);
        let finding = judge(&tried(TrialVerdict::AccountBroken)).unwrap();
        assert_eq!(finding.subject, "account of shop at apns");
        assert_eq!(finding.remedy(), Some("remedy"));
    }

    #[test]
    fn the_accounts_that_were_not_tried_are_counted() {
        use TrialVerdict::{AccountBroken, Unchecked, Works};
        let of = [Works, Works, Unchecked, AccountBroken].map(tried);
        assert_eq!(
            summary(&of, 7).detail,
            "2 of 4 work, 1 can be tried with a device only, and 7 were not tried: \
             `pushctl app transport test` tries a single one"
        );
        assert_eq!(summary(&of[..2], 0).detail, "2 of 2 work");
    }
}
