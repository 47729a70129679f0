//! Limits and quotas, as they are written on the command line.

use std::num::NonZeroU32;

use clap::Args;
use push_boot::settings::count_or_none;
use push_model::app::AppQuota;
use push_operator::app::LimitChanges;

/// The flags of `app set`.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct Changes {
    /// The most pushes per second, or `none`
    #[arg(long, value_name = "N", value_parser = limit)]
    rate_limit: Option<Limit>,
    /// The most devices per second that all workers together send to, or `none`
    #[arg(long, value_name = "N", value_parser = limit)]
    pace: Option<Limit>,
    /// The most devices the app may have, `none`, or `default` for --app-max-devices of ingest
    #[arg(long, value_name = "N", value_parser = quota)]
    max_devices: Option<AppQuota>,
    /// The most messages of the app that may wait, `none`, or `default` for --app-max-waiting of ingest
    #[arg(long, value_name = "N", value_parser = quota)]
    max_waiting: Option<AppQuota>,
    /// The most ledger entries that the app's messages may have, `none`, or `default` for
    /// --app-max-ledger-entries of ingest
    #[arg(long, value_name = "N", value_parser = quota)]
    max_ledger_entries: Option<AppQuota>,
}

impl From<Changes> for LimitChanges {
    fn from(flags: Changes) -> Self {
        Self {
            rate_limit: flags.rate_limit.map(|Limit(limit)| limit),
            pace: flags.pace.map(|Limit(limit)| limit),
            max_devices: flags.max_devices,
            max_waiting: flags.max_waiting,
            max_ledger_entries: flags.max_ledger_entries,
        }
    }
}

/// A new limit; `None` removes the limit.
#[derive(Debug, Clone, Copy)]
struct Limit(Option<NonZeroU32>);

fn limit(text: &str) -> Result<Limit, String> {
    count_or_none(text).map(Limit)
}

pub(super) fn quota(text: &str) -> Result<AppQuota, String> {
    match text {
        "default" => Ok(AppQuota::Default),
        _ => match limit(text).map_err(|wrong| format!("{wrong}, or default"))? {
            Limit(Some(devices)) => Ok(AppQuota::AtMost(devices)),
            Limit(None) => Ok(AppQuota::None),
        },
    }
}
