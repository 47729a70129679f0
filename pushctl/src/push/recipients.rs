//! Who gets a push, from flags.

use std::collections::BTreeMap;

use push_model::ids::ClientId;
use serde_json::{Value, json};

/// Flags that make the condition of a push.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct RecipientArgs {
    /// All devices
    #[arg(long)]
    all: bool,
    /// These devices
    #[arg(long, value_name = "CLIENT_ID", num_args = 1.., value_delimiter = ',')]
    to: Vec<ClientId>,
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
        let named = [("--all", self.all), ("--to", !self.to.is_empty())];
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
        match (self.all, !self.to.is_empty(), flags.first()) {
            (true, false, None) => Ok(json!({ "type": 0 })),
            (false, true, None) => Ok(json!({ "type": 2, "client_ids": self.to })),
            (false, false, Some(_)) => Ok(json!({ "type": 1, "targeting": targeting })),
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
