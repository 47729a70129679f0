//! What a move says in the end: what became of each app, and which have not moved.

use std::time::Duration;

use push_model::ids::AppId;
use serde_json::{Value, json};

use crate::{
    output::{Output, Table},
    transfer::arrive::Arrived,
};

/// Apps that have not moved, each with the reason.
pub(super) type Failed = Vec<(AppId, anyhow::Error)>;

/// What became of an app.
pub(super) struct Moved {
    pub(super) app: AppId,
    /// What was done; or why nothing was.
    pub(super) done: Result<Arrived, String>,
    pub(super) is_disabled: bool,
    /// Why the audit trail of a store lacks that it moved, if it does.
    pub(super) not_recorded: Option<String>,
}

impl Moved {
    fn cells(&self) -> [String; 6] {
        let app = self.app.to_string();
        match &self.done {
            Ok(Arrived { devices, copied, mended, unreadable }) => {
                let [devices, copied, mended, unreadable] =
                    [devices, copied, mended, unreadable].map(u64::to_string);
                let state = if self.is_disabled { "disabled" } else { "enabled" };
                [app, devices, copied, mended, unreadable, state.to_owned()]
            }
            Err(why) => {
                let none = || "-".to_owned();
                [app, none(), none(), none(), none(), why.clone()]
            }
        }
    }

    fn json(&self) -> Value {
        let app = &self.app;
        match &self.done {
            Ok(Arrived { devices, copied, mended, unreadable }) => json!({
                "app_id": app,
                "moved_before": false,
                "devices": devices,
                "copied": copied,
                "mended": mended,
                "left_out": unreadable,
                "disabled": self.is_disabled,
            }),
            Err(_) => json!({ "app_id": app, "moved_before": true }),
        }
    }
}

/// What was done.
pub(super) struct Report<'a> {
    pub(super) moved: &'a [Moved],
    /// Whether these are all: no other app was to be moved and was not.
    pub(super) is_all: bool,
    /// The store that they left.
    pub(super) from: &'a str,
    /// The store that they went to.
    pub(super) to: &'a str,
    pub(super) took: Duration,
}

impl Report<'_> {
    /// Prints it.
    ///
    /// # Errors
    /// If standard output is closed.
    pub(super) fn print(&self, out: Output) -> anyhow::Result<()> {
        let rows: Vec<_> = self.moved.iter().map(Moved::json).collect();
        let devices: u64 =
            self.moved.iter().filter_map(|moved| Some(moved.done.as_ref().ok()?.devices)).sum();
        let seconds = self.took.as_secs_f64();
        out.result(self.text(), &json!({ "apps": rows, "devices": devices, "seconds": seconds }))
    }

    fn text(&self) -> String {
        let Self { moved, is_all, from, to, took } = self;
        if moved.is_empty() {
            return format!(
                "there are no apps in {from}; one that is on its way there does not count: finish its move first"
            );
        }
        let mut table = Table::new(&["APP", "DEVICES", "COPIED", "MENDED", "LEFT OUT", "STATE"]);
        moved.iter().for_each(|moved| table.row(moved.cells()));
        if moved.iter().any(|moved| moved.done.is_ok()) {
            format!(
                "{table}\nmoved from {from} to {to} in {:.1} s; the devices of both were compared\n\
                 Messages that were accepted before stay with the old service: let its workers run until \
                 they are sent.",
                took.as_secs_f64()
            )
        } else if *is_all {
            format!("{table}\nnothing was left to move")
        } else {
            table.to_string()
        }
    }
}

/// What to say of an app that went to this store before. The store that it left cannot know whether the last
/// step was made there.
pub(super) fn elsewhere(store: &str) -> String {
    format!(
        "moved to {store} before, or a move there did all but its last step: run that move again if the app is \
         not in service there"
    )
}

/// What to say of the apps that have not moved.
pub(super) fn not_moved(failed: Failed) -> Option<String> {
    let why = |(app, error): (AppId, anyhow::Error)| {
        let error = format!("{error:#}");
        let prefix = format!("{app}: ");
        format!("{prefix}{}", error.strip_prefix(&prefix).unwrap_or(&error))
    };
    let apps: Vec<_> = failed.into_iter().map(why).collect();
    (!apps.is_empty()).then(|| {
        format!(
            "these apps have not moved, and may be in service in neither store until the same command has \
             moved them, or pushctl app enable takes them back in the store that they leave:\n  {}",
            apps.join("\n  ")
        )
    })
}

/// What to say of the apps that a move of all apps left out, because another one takes them to its source.
pub(super) fn left_out(apps: &[AppId], from: &str, to: &str) -> Option<String> {
    let apps: Vec<&str> = apps.iter().map(AppId::as_str).collect();
    (!apps.is_empty()).then(|| {
        format!(
            "these apps are left out, because their move from {to} to {from} has not ended, and may be in \
             service in neither store until it is run again and ends: {}",
            apps.join(", ")
        )
    })
}

/// What to say of the apps that have moved without a record of it.
pub(super) fn not_recorded(moved: &[Moved]) -> Option<String> {
    let why = |moved: &Moved| Some(format!("{}: {}", moved.app, moved.not_recorded.as_ref()?));
    let apps: Vec<_> = moved.iter().filter_map(why).collect();
    (!apps.is_empty()).then(|| {
        format!("these apps have moved, but an audit trail lacks it:\n  {}", apps.join("\n  "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(done: Result<Arrived, String>) -> Moved {
        let app = "news".parse().unwrap();
        Moved { app, done, is_disabled: false, not_recorded: None }
    }

    #[test]
    fn only_if_no_app_has_failed_nothing_was_left_to_move() {
        let before = [moved(Err("moved before".to_owned()))];
        let text = |is_all| {
            let (from, to, took) = ("here", "there", Duration::ZERO);
            Report { moved: &before, is_all, from, to, took }.text()
        };
        assert!(text(true).contains("moved before") && text(true).contains("nothing was left"));
        assert!(text(false).contains("moved before") && !text(false).contains("nothing was left"));
    }

    #[test]
    fn an_app_that_went_elsewhere_may_be_in_service_nowhere() {
        let text = elsewhere("redis://there");
        assert!(
            text.contains("redis://there before, or a move there did all but its last"),
            "{text}"
        );
    }

    #[test]
    fn an_app_that_moved_without_a_record_is_not_among_those_that_have_not_moved() {
        let recorded = moved(Ok(Arrived::default()));
        assert_eq!(not_recorded(&[recorded]), None);
        let not_recorded_at = Some("redis://there: no".to_owned());
        let unrecorded = Moved { not_recorded: not_recorded_at, ..moved(Ok(Arrived::default())) };
        let text = not_recorded(&[unrecorded]).unwrap();
        assert!(
            text.contains("have moved, but") && text.contains("news: redis://there: no"),
            "{text}"
        );
        assert_eq!(not_moved(Vec::new()), None);
    }
}
