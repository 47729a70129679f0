//! `pushctl audience`: counts the devices that a push would target, through the HTTP endpoint.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use push_model::{audience::AudienceReport, ids::AppId};
use push_operator::message::remote;
use serde_json::Value;

use super::{RecipientArgs, read_body};
use crate::{
    output::{Output, Table},
    server::ServerArgs,
};

/// The field of a push that says who gets it.
const CONDITION: &str = "condition";

/// Flags of `audience`.
#[derive(Debug, clap::Args)]
pub struct AudienceArgs {
    /// The app
    app_id: AppId,
    /// A push as JSON, or only its condition, in place of the flags; - for standard input
    file: Option<PathBuf>,
    #[command(flatten)]
    recipients: RecipientArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// Counts the devices, and prints the counts.
///
/// # Errors
/// If the flags contradict each other, the file cannot be read, or the server does not answer or refuses.
pub async fn run(args: AudienceArgs, out: Output) -> anyhow::Result<()> {
    let AudienceArgs { app_id, file, recipients, server } = args;
    let condition = match &file {
        None => recipients.condition().map_err(anyhow::Error::msg)?,
        Some(file) => {
            if let Some(flag) = recipients.given().first() {
                bail!("FILE says who gets it: leave out {flag}, or FILE");
            }
            condition_in(&read_body(file)?)?
        }
    };
    let client = server.client(&app_id, out)?;
    let report = remote::audience(&client, &condition).await?;
    out.result(text(&report), &report)
}

/// Returns the condition in a push, or all of what is none.
fn condition_in(text: &[u8]) -> anyhow::Result<Value> {
    let mut push: Value = serde_json::from_slice(text).context("FILE is not valid JSON")?;
    let fields = push.as_object_mut().context("FILE is not a JSON object")?;
    Ok(fields.remove(CONDITION).unwrap_or(push))
}

fn text(AudienceReport { counts, seconds_at_pace }: &AudienceReport) -> String {
    let mut table = Table::new(&["DEVICES", "OF THEM"]);
    table.row([counts.devices.to_string(), "in the audience".to_owned()]);
    for (transport, devices) in &counts.by_transport {
        table.row([devices.to_string(), format!("over {}", transport.name())]);
    }
    for count in &counts.after_each_criterion {
        let name = count.criterion.name();
        table.row([count.devices.to_string(), format!("left after {name}")]);
    }
    let pace = seconds_at_pace
        .map(|seconds| format!("At the pace of the app, a push to them takes {seconds} s."));
    format!("{table}{}", pace.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_has_a_push_or_only_its_condition() {
        let condition = json!({ "type": 1, "targeting": { "country": ["SG"] } });
        let push = json!({ "type": 2, "time_to_live": 60, "condition": condition });
        for file in [&push, &condition] {
            assert_eq!(condition_in(file.to_string().as_bytes()).unwrap(), condition);
        }
        for wrong in ["[]", "{", ""] {
            assert!(condition_in(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_text_has_the_audience_then_each_transport_then_each_criterion_and_the_pace() {
        let report = json!({
            "devices": 431, "by_transport": { "mqtt": 400, "fcm": 31 }, "seconds_at_pace": 9,
            "after_each_criterion": [
                { "criterion": "country", "devices": 12_000 },
                { "criterion": "app_version", "devices": 431 },
            ],
        });
        let mut report: AudienceReport = serde_json::from_value(report).unwrap();
        let rows = "DEVICES  OF THEM\n\
                    431      in the audience\n\
                    400      over mqtt\n\
                    31       over fcm\n\
                    12000    left after country\n\
                    431      left after app_version\n";
        let pace = "At the pace of the app, a push to them takes 9 s.";
        assert_eq!(text(&report), format!("{rows}{pace}"));
        report.seconds_at_pace = None;
        assert_eq!(text(&report), rows);
        assert!(text(&report).lines().chain([pace]).all(|line| line.len() <= 80));
    }
}
