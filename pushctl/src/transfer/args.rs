//! The flags of `pushctl move`, and their check.

use std::time::Duration;

use push_boot::{
    engines::{EngineArgs, IndexUrl},
    settings,
    settings::{ConfigErrors, duration},
};
use push_model::{ids::AppId, namespace::namespace};
use push_operator::transfer::moving::MoveRequest;

/// Flags of `move`.
#[derive(Debug, clap::Args)]
pub struct MoveArgs {
    #[command(flatten)]
    stores: MoveStoreArgs,
    /// Move this app, and not all; can be given several times
    #[arg(long = "app", value_name = "APP_ID")]
    apps: Vec<AppId>,
    /// Move even an app whose name a removed app of the target had: its devices have to register
    /// again, because their MQTT logins end
    #[arg(long)]
    new_logins: bool,
    /// Leave out devices whose records cannot be read
    #[arg(long)]
    skip_unreadable: bool,
}

settings! {
    /// Flags about the stores.
    struct MoveStoreArgs, "Stores" => MoveStoreValues {
        /// The store that the apps leave: a URL as for --index-url
        from or from_file: Option<IndexUrl> = ["URL"] IndexUrl::parse;
        /// The store that they go to: a URL as for --index-url
        to or to_file: Option<IndexUrl> = ["URL"] IndexUrl::parse;
        /// The namespace in the store that they go to; if not given, --namespace
        to_namespace: Option<String> = ["NAME"] namespace;
        /// Wait this long until programs at the source have read an app's new record: longer than `--tune app-fresh` of
        /// ingest; 0s if none of them runs
        notice: Duration = ["TIME", "6s"] duration;
    }
}

impl MoveArgs {
    pub(super) fn check(
        self,
        engines: &EngineArgs,
        errors: &mut ConfigErrors,
    ) -> Option<MoveRequest> {
        let given = self.stores.values(errors)?;
        let from = errors.required("--from", Some(given.from));
        let to = errors.required("--to", Some(given.to));
        let urls = from.zip(to).map(|(from, to)| [from, to]);
        let [from, to] = engines.check_stores(urls, given.to_namespace, errors)?;
        Some(MoveRequest {
            from,
            to,
            apps: self.apps,
            notice: given.notice,
            new_logins: self.new_logins,
            skip_unreadable: self.skip_unreadable,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        engines: EngineArgs,
        #[command(flatten)]
        args: MoveArgs,
    }

    #[test]
    fn both_stores_must_be_given_and_a_wrong_url_is_not_repeated() {
        let wrong = |flags: &[&str]| {
            let cli = Cli::parse_from(std::iter::once(&"test").chain(flags));
            let mut errors = ConfigErrors::default();
            assert!(cli.args.check(&cli.engines, &mut errors).is_none());
            errors.to_string()
        };
        let text = wrong(&["--from=mysql://u:hunter2@h", "--to-namespace=B"]);
        assert!(text.contains("--from (PUSH_FROM): must begin with"), "{text}");
        assert!(text.contains("--to-namespace (PUSH_TO_NAMESPACE)"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
        let text = wrong(&["--from=redis://h"]);
        assert!(text.contains("--to (PUSH_TO): must be set"), "{text}");
    }
}
