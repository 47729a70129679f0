//! Who gets a push, from flags.

use std::collections::BTreeMap;

use push_model::{
    filter::Sample,
    ids::{ClientId, Topic, UserId},
};
use serde_json::{Value, json};

fn filter(text: &str) -> Result<Value, String> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("is no JSON: {error}"))?;
    if value.is_object() { Ok(value) } else { Err("must be a JSON object".to_owned()) }
}

/// Parses FROM-TO or FROM-TO:SEED, in percent.
fn sample(text: &str) -> Result<Value, String> {
    let form = || "must be FROM-TO in percent, such as 0-10, or with a seed, such as 0-10:spring";
    let (range, seed) = text.split_once(':').unwrap_or((text, ""));
    let (from, to) = range.split_once('-').ok_or_else(form)?;
    let percent = |text: &str| {
        let number: f64 = text.parse().map_err(|_| form())?;
        let whole = f64::from(Sample::WHOLE) / 100.0;
        if (0.0..=whole).contains(&number) { Ok(number) } else { Err(form()) }
    };
    let (from, to) = (percent(from)?, percent(to)?);
    Ok(json!({ "from": from, "to": to, "seed": seed }))
}

/// Flags that make the condition of a push.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct RecipientArgs {
    /// All devices
    #[arg(long)]
    all: bool,
    /// These devices
    #[arg(long, value_name = "CLIENT_ID", num_args = 1.., value_delimiter = ',')]
    to: Vec<ClientId>,
    /// All devices of these users
    #[arg(long, value_name = "USER_ID", num_args = 1.., value_delimiter = ',')]
    user: Vec<UserId>,
    /// Devices that have one of these topics
    #[arg(long, value_name = "TOPIC", num_args = 1.., value_delimiter = ',')]
    topic: Vec<Topic>,
    /// Devices for which this expression holds, such as '{"attribute":"level","gte":10}'
    #[arg(long, value_name = "JSON", value_parser = filter)]
    filter: Option<Value>,
    /// Only these percent of the devices, such as 0-10; with :SEED behind it another share
    #[arg(long, value_name = "FROM-TO", value_parser = sample)]
    sample: Option<Value>,
    /// Devices in these countries, such as SG
    #[arg(long, value_name = "COUNTRY", num_args = 1.., value_delimiter = ',')]
    country: Vec<String>,
    /// Devices with these languages, such as zh
    #[arg(long, value_name = "LANGUAGE", num_args = 1.., value_delimiter = ',')]
    language: Vec<String>,
    /// Devices of these brands
    #[arg(long, value_name = "BRAND", num_args = 1..)]
    brand: Vec<String>,
    /// Devices of these models
    #[arg(long, value_name = "MODEL", num_args = 1..)]
    model: Vec<String>,
    /// Devices with these Android API levels
    #[arg(long, value_name = "LEVEL", num_args = 1.., value_delimiter = ',')]
    os_version: Vec<String>,
    /// Devices with these versions of the app
    #[arg(long, value_name = "VERSION", num_args = 1..)]
    app_version: Vec<String>,
}

impl RecipientArgs {
    /// Returns the flags that are given, by their names.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        let named = [
            ("--all", self.all),
            ("--to", !self.to.is_empty()),
            ("--user", !self.user.is_empty()),
            ("--topic", !self.topic.is_empty()),
            ("--filter", self.filter.is_some()),
            ("--sample", self.sample.is_some()),
        ];
        let lists = self.targeting().map(|(_, flag, values)| (flag, !values.is_empty()));
        named.into_iter().chain(lists).filter(|of| of.1).map(|of| of.0).collect()
    }

    /// Returns the condition of a request.
    ///
    /// # Errors
    /// If the flags do not say who gets it, or contradict each other.
    pub(crate) fn condition(&self) -> Result<Value, String> {
        let mut targeting = BTreeMap::new();
        let mut flags = Vec::new();
        for (name, flag, values) in self.targeting() {
            if !values.is_empty() {
                targeting.insert(name, values);
                flags.push(flag);
            }
        }
        let mut targeting = json!(targeting);
        if let Some((flag, filter)) = self.expression() {
            flags.push(flag);
            if let Some(members) = targeting.as_object_mut() {
                members.insert("filter".to_owned(), filter);
            }
        }
        let is_named = !self.to.is_empty() || !self.user.is_empty();
        if is_named && self.sample.is_some() {
            return Err(
                "--to and --user name the devices, so --sample would have no effect: leave it out"
                    .to_owned(),
            );
        }
        let condition = self.condition_of(is_named, flags.first().copied(), &targeting);
        condition.map(|mut condition| {
            if let (Some(sample), Some(members)) = (&self.sample, condition.as_object_mut()) {
                members.insert("sample".to_owned(), sample.clone());
            }
            condition
        })
    }

    /// Returns the expression of `--topic` and `--filter`, and the first of these flags.
    fn expression(&self) -> Option<(&'static str, Value)> {
        let topics: Vec<Value> = self.topic.iter().map(|topic| json!({ "topic": topic })).collect();
        let topics = match <[Value; 1]>::try_from(topics) {
            Ok([one]) => Some(one),
            Err(none) if none.is_empty() => None,
            Err(several) => Some(json!({ "any": several })),
        };
        match (topics, self.filter.clone()) {
            (None, None) => None,
            (Some(topics), None) => Some(("--topic", topics)),
            (None, Some(filter)) => Some(("--filter", filter)),
            (Some(topics), Some(filter)) => Some(("--topic", json!({ "all": [topics, filter] }))),
        }
    }

    fn condition_of(
        &self,
        is_named: bool,
        flag: Option<&str>,
        targeting: &Value,
    ) -> Result<Value, String> {
        match (self.all, is_named, flag) {
            (true, false, None) => Ok(json!({ "type": 0 })),
            (false, true, None) => {
                let mut condition = json!({ "type": 2 });
                let named = [("client_ids", json!(self.to)), ("user_ids", json!(self.user))];
                for (name, ids) in named.into_iter().filter(|(_, ids)| *ids != json!([])) {
                    condition[name] = ids;
                }
                Ok(condition)
            }
            (false, false, Some(_)) => Ok(json!({ "type": 1, "targeting": targeting })),
            (false, false, None) if self.sample.is_some() => Ok(json!({ "type": 0 })),
            (false, false, None) => {
                Err("say who gets it: --all, --to CLIENT_ID, or a targeting such as \
                     --country SG"
                    .to_owned())
            }
            (true, true, _) => Err("--all and --to: leave out one of them".to_owned()),
            (true, false, Some(flag)) => {
                Err(format!("--all and {flag}: all devices, or only some? Leave out one of them"))
            }
            (false, true, Some(flag)) => Err(format!(
                "--to names the devices, so {flag} would have no effect: leave out one of them"
            )),
        }
    }

    /// Returns each list of the targeting: its name, its flag, its values.
    fn targeting(&self) -> [(&'static str, &'static str, &[String]); 6] {
        [
            ("country", "--country", &self.country),
            ("language", "--language", &self.language),
            ("brand", "--brand", &self.brand),
            ("model", "--model", &self.model),
            ("os_version", "--os-version", &self.os_version),
            ("app_version", "--app-version", &self.app_version),
        ]
    }
}
