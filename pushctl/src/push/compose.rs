//! A push made from flags: who gets it, and what.

use std::{collections::BTreeMap, time::Duration};

use push_boot::settings::duration;
use serde_json::{Value, json};

use super::recipients::RecipientArgs;

/// The time to live if none is given.
const DEFAULT_TTL: Duration = Duration::from_hours(1);

/// Flags that make a push.
#[derive(Debug, Default, clap::Args)]
pub(super) struct ComposeArgs {
    /// The title of a notification
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// The text of a notification
    #[arg(long, value_name = "TEXT")]
    desc: Option<String>,
    /// A pair for the app, in a data message in place of a notification
    #[arg(long, value_name = "KEY=VALUE", num_args = 1.., value_parser = pair)]
    data: Vec<(String, String)>,
    #[command(flatten)]
    recipients: RecipientArgs,
    /// Give up after this time; 0s means now or never [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = time_to_live)]
    ttl: Option<Duration>,
    /// Wake devices up (high), or let them save power (normal)
    #[arg(long, value_name = "PRIORITY", value_parser = ["normal", "high"])]
    priority: Option<String>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE")?;
    match key {
        "" => Err("must have a key before =".to_owned()),
        key => Ok((key.to_owned(), value.to_owned())),
    }
}

fn time_to_live(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    match time.subsec_nanos() {
        0 => Ok(time),
        _ => Err("must be whole seconds".to_owned()),
    }
}

impl ComposeArgs {
    /// Returns the flags that are given, by their names.
    pub(super) fn given(&self) -> Vec<&'static str> {
        let content = [
            ("--title", self.title.is_some()),
            ("--desc", self.desc.is_some()),
            ("--data", !self.data.is_empty()),
            ("--ttl", self.ttl.is_some()),
            ("--priority", self.priority.is_some()),
        ];
        let content = content.into_iter().filter(|of| of.1).map(|of| of.0);
        content.chain(self.recipients.given()).collect()
    }

    /// Returns the request body.
    ///
    /// # Errors
    /// If the flags do not say who gets it or what, or contradict each other.
    pub(super) fn body(&self) -> Result<Value, String> {
        let (kind, name, content) = self.content()?;
        let mut body = json!({
            "type": kind,
            "time_to_live": self.ttl.unwrap_or(DEFAULT_TTL).as_secs(),
            "condition": self.recipients.condition()?,
            name: content,
        });
        if let (Some(priority), Some(fields)) = (&self.priority, body.as_object_mut()) {
            fields.insert("priority".to_owned(), json!(priority));
        }
        Ok(body)
    }

    fn content(&self) -> Result<(u8, &'static str, Value), String> {
        let has_text = self.title.is_some() || self.desc.is_some();
        match (has_text, self.data.is_empty()) {
            (true, true) => {
                let texts = [("title", &self.title), ("desc", &self.desc)];
                let given =
                    texts.into_iter().filter_map(|(name, text)| Some((name, text.as_ref()?)));
                Ok((1, "notification", json!(given.collect::<BTreeMap<_, _>>())))
            }
            (false, false) => {
                let mut pairs = BTreeMap::new();
                for (key, value) in &self.data {
                    if pairs.insert(key, value).is_some() {
                        return Err(format!("--data has the key {key} twice"));
                    }
                }
                Ok((2, "data", json!(pairs)))
            }
            (true, false) => {
                Err("--title and --desc make a notification, --data a data message: a push \
                                  is one of both"
                    .to_owned())
            }
            (false, true) => {
                Err("say what to send: --title and --desc, or --data KEY=VALUE, or a FILE \
                                  with the request"
                    .to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: ComposeArgs,
    }

    fn body(flags: &str) -> Result<Value, String> {
        Cli::try_parse_from(format!("test {flags}").split(' ')).unwrap().args.body()
    }

    #[test]
    fn flags_make_the_request_of_each_kind_of_audience_and_content() {
        let notification = json!({ "title": "Hi", "desc": "There" });
        assert_eq!(
            body("--title Hi --desc There --all").unwrap(),
            json!({ "type": 1, "time_to_live": 3600, "condition": { "type": 0 },
                    "notification": notification })
        );
        assert_eq!(
            body("--data a=1 b=x=y --to p-1,p-2 p-3 --ttl 0s --priority high").unwrap(),
            json!({ "type": 2, "time_to_live": 0, "priority": "high",
                    "condition": { "type": 2, "client_ids": ["p-1", "p-2", "p-3"] },
                    "data": { "a": "1", "b": "x=y" } })
        );
        let all_lists = "--title Hi --country SG,MY --language zh --brand Xiaomi --model iPhone14,5 \
                         --os-version 34 --app-version 2.1.0";
        assert_eq!(
            body(all_lists).unwrap()["condition"],
            json!({ "type": 1, "targeting": {
                "country": ["SG", "MY"], "language": ["zh"], "brand": ["Xiaomi"],
                "model": ["iPhone14,5"], "os_version": ["34"], "app_version": ["2.1.0"] } })
        );
    }

    #[test]
    fn a_combination_without_sense_is_refused_with_what_to_leave_out() {
        for (flags, told) in [
            ("--title Hi", "say who gets it"),
            ("--all", "say what to send"),
            ("--title Hi --data a=1 --all", "a push is one of both"),
            ("--title Hi --all --to p", "--all and --to"),
            ("--title Hi --all --brand B", "--all and --brand"),
            ("--title Hi --to p --model M", "--model would have no effect"),
            ("--data a=1 a=2 --all", "the key a twice"),
        ] {
            let refused = body(flags).unwrap_err();
            assert!(refused.contains(told), "{flags}: {refused}");
        }
        for wrong in ["--data a", "--data =1", "--ttl 1500ms", "--ttl 5", "--priority low"] {
            assert!(Cli::try_parse_from(format!("test {wrong}").split(' ')).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_flags_that_are_given_are_known_by_name() {
        let cli = Cli::try_parse_from("test --ttl 5s --brand B --to p".split(' ')).unwrap();
        assert_eq!(cli.args.given(), ["--ttl", "--to", "--brand"]);
        assert!(Cli::try_parse_from(["test"]).unwrap().args.given().is_empty());
    }
}
