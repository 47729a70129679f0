//! Sealing the accounts of all apps with the newest key, after which the earlier ones can be dropped.
//!
//! Apps that moved to another store are sealed as well: such an app may be enabled here again. An account that
//! does not open keeps none of the others from being sealed.

use anyhow::{Context as _, bail, ensure};
use push_credentials::{SealFile, SealKeys};
use push_index::Index;
use push_model::{
    app::{App, ProviderAccount},
    audit::Action,
    device::TransportKind,
    ids::AppId,
    time::UnixMillis,
};
use push_store::IndexError;
use serde::Serialize;

use super::change_any_app;
use crate::audit::{Actor, append};

/// The most accounts that an error names.
const NAMED: usize = 10;

const NOT_RECORDED: &str = "accounts were sealed, but that is not recorded in the audit trail";

/// The accounts that were to be sealed anew.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Resealed {
    /// The number of those that were.
    pub resealed: u64,
    /// Those that were not.
    pub failed: Vec<NotResealed>,
}

/// An account that was not sealed anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotResealed {
    /// Its app.
    pub app_id: AppId,
    /// Its transport; none if the record of the app could not be changed.
    pub transport: Option<TransportKind>,
    /// The reason.
    pub why: String,
}

/// Seals the accounts of all apps with the newest key. Those that fail are in the result.
///
/// # Errors
/// If the newest key does not seal yet, or the index did not answer; another call goes on. What was sealed
/// before is recorded.
pub async fn reseal(index: &dyn Index, seal: &SealFile, actor: &Actor) -> anyhow::Result<Resealed> {
    let event = actor.event(Action::AccountsResealed);
    let mut is_recorded = false;
    let work = async {
        let (now, keys) = (UnixMillis::now(), seal.current());
        check_seals(&keys, now)?;
        let mut all = Resealed::default();
        for app in index.apps().await? {
            if app.transports.values().all(|account| keys.is_newest(&account.sealed, now)) {
                continue;
            }
            let mut of_app = Resealed::default();
            let change = |app: &mut App| {
                of_app = reseal_app(app, &keys, now);
                Ok(())
            };
            match change_any_app(index, (&app.app_id).into(), change).await {
                Ok(_) => {
                    all.resealed += of_app.resealed;
                    all.failed.extend(of_app.failed);
                    // With the first change: the rest may break off, with the process or the index.
                    if all.resealed > 0 && !is_recorded {
                        append(Some(index), event.clone(), true).await.context(NOT_RECORDED)?;
                        is_recorded = true;
                    }
                }
                Err(error) if error.is::<IndexError>() => return Err(error),
                Err(error) => {
                    let why = format!("{error:#}");
                    all.failed.push(NotResealed { app_id: app.app_id, transport: None, why });
                }
            }
        }
        Ok(all)
    };
    let result = work.await;
    if !is_recorded {
        let done = result.as_ref().is_ok_and(|all| all.failed.is_empty());
        let recorded = append(Some(index), event, done).await;
        if result.is_ok() {
            recorded.context(NOT_RECORDED)?;
        }
    }
    result
}

fn reseal_app(app: &mut App, keys: &SealKeys, now: UnixMillis) -> Resealed {
    let (mut all, app_id) = (Resealed::default(), &app.app_id);
    for (kind, account) in &mut app.transports {
        if keys.is_newest(&account.sealed, now) {
            continue;
        }
        let context = ProviderAccount::context(app_id, *kind);
        let opened = keys.open(&account.sealed, &context);
        match opened.and_then(|opened| keys.seal(&opened, &context, now)) {
            Ok(sealed) => {
                account.sealed = sealed;
                all.resealed += 1;
            }
            Err(error) => all.failed.push(NotResealed {
                app_id: app_id.clone(),
                transport: Some(*kind),
                why: error.to_string(),
            }),
        }
    }
    all
}

/// Refuses while the newest key does not seal yet: everything would be sealed with an earlier one.
///
/// # Errors
/// If it does not; the text says when it will.
pub(crate) fn check_seals(keys: &SealKeys, now: UnixMillis) -> anyhow::Result<()> {
    if let Some((key, from)) = keys.next(now) {
        bail!(
            "nothing was changed: the newest key, {key}, seals from {from} on. Run the command again after that"
        );
    }
    Ok(())
}

/// Refuses while an account is sealed with another key than the newest one.
///
/// # Errors
/// If there is one, the newest key does not seal yet, or the index did not answer.
pub(crate) async fn check_all_sealed(
    index: &dyn Index,
    keys: &SealKeys,
    now: UnixMillis,
) -> anyhow::Result<()> {
    check_seals(keys, now)?;
    let mut earlier = Vec::new();
    for app in index.apps().await? {
        let old = app.transports.iter().filter(|(_, old)| !keys.is_newest(&old.sealed, now));
        earlier.extend(old.map(|(kind, _)| ProviderAccount::context(&app.app_id, *kind)));
    }
    let named = earlier.get(..NAMED).unwrap_or(&earlier).join(", ");
    let more = if earlier.len() > NAMED { " and others" } else { "" };
    ensure!(
        earlier.is_empty(),
        "no key was dropped: {} accounts are not sealed with the newest one ({named}{more}). Run `pushctl key \
         reseal`; set those again that it cannot seal, or remove them",
        earlier.len()
    );
    Ok(())
}

#[cfg(test)]
mod tests;
