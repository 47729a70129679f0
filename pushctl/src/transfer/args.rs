//! The flags of `pushctl move`, and their check.

use std::path::PathBuf;

use push_boot::{
    engines::EngineArgs,
    secret::{SecretSetting, SecretText},
    settings::{ConfigErrors, duration},
};
use push_model::ids::AppId;
use push_operator::transfer::moving::MoveRequest;

/// Flags of `move`.
#[derive(Debug, clap::Args)]
pub struct MoveArgs {
    /// The store that the apps leave: a URL as for --index-url
    #[arg(long, env = "PUSH_FROM", value_name = "URL")]
    from: Option<SecretText>,
    /// The file that holds the URL, in place of --from
    #[arg(long, env = "PUSH_FROM_FILE", value_name = "FILE")]
    from_file: Option<PathBuf>,
    /// The store that they go to: a URL as for --index-url
    #[arg(long, env = "PUSH_TO", value_name = "URL")]
    to: Option<SecretText>,
    /// The file that holds the URL, in place of --to
    #[arg(long, env = "PUSH_TO_FILE", value_name = "FILE")]
    to_file: Option<PathBuf>,
    /// The namespace in the store that they go to; if not given, --namespace
    #[arg(long, env = "PUSH_TO_NAMESPACE", value_name = "NAME")]
    to_namespace: Option<String>,
    /// Move this app, and not all; can be given several times
    #[arg(long = "app", value_name = "APP_ID")]
    apps: Vec<AppId>,
    /// Wait this long until programs at the source have read an app's new record: longer than `--tune app-fresh` of
    /// ingest; 0s if none of them runs
    #[arg(long, env = "PUSH_NOTICE", value_name = "TIME", default_value = "6s")]
    notice: String,
    /// Move even an app whose name a removed app of the target had: its devices have to register
    /// again, because their MQTT logins end
    #[arg(long)]
    new_logins: bool,
    /// Leave out devices whose records cannot be read
    #[arg(long)]
    skip_unreadable: bool,
}

impl MoveArgs {
    pub(super) fn check(
        self,
        engines: &EngineArgs,
        errors: &mut ConfigErrors,
    ) -> Option<MoveRequest> {
        let from = SecretSetting { text: self.from.as_ref(), file: self.from_file.as_deref() };
        let to = SecretSetting { text: self.to.as_ref(), file: self.to_file.as_deref() };
        let both = [("--from", from), ("--to", to)];
        let stores = engines.check_stores(both, self.to_namespace.as_deref(), errors);
        let notice = errors.read("--notice", &self.notice, duration);
        let [from, to] = stores?;
        Some(MoveRequest {
            from,
            to,
            apps: self.apps,
            notice: notice?,
            new_logins: self.new_logins,
            skip_unreadable: self.skip_unreadable,
        })
    }
}
