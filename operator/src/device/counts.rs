//! The devices of an app in figures: by transport and by country.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use push_index::{DeviceTally, Index, tally_devices};
use push_model::{attributes::Attribute, device::TransportKind};
use serde::Serialize;

use super::find_app;
use crate::app::AppRef;

/// The most countries that are counted one by one.
const MAX_COUNTRIES: usize = 20;

/// The number of an app's devices, by transport and by country.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceCounts {
    /// All of them.
    pub devices: u64,
    /// Those of each transport that has any.
    pub by_transport: BTreeMap<TransportKind, u64>,
    /// Those of the countries with the most devices: at most 20, the largest first.
    pub by_country: Vec<CountryCount>,
    /// Those of all other countries.
    pub other_countries: u64,
    /// Those whose country is not known.
    pub without_country: u64,
}

/// The number of devices in a country.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CountryCount {
    /// The country, as devices registered it.
    pub country: Arc<str>,
    /// The number of its devices.
    pub devices: u64,
}

impl DeviceCounts {
    fn of(tally: DeviceTally) -> Self {
        let DeviceTally { by_transport, mut by_value } = tally;
        let without_country = by_value.remove(&None).unwrap_or_default();
        let count = |(country, devices): (Option<Arc<str>>, u64)| {
            country.map(|country| CountryCount { country, devices })
        };
        let mut by_country: Vec<_> = by_value.into_iter().filter_map(count).collect();
        by_country.sort_by(|a, b| {
            (Reverse(a.devices), &a.country).cmp(&(Reverse(b.devices), &b.country))
        });
        let others = by_country.split_off(by_country.len().min(MAX_COUNTRIES));
        Self {
            devices: by_transport.values().sum(),
            by_transport,
            by_country,
            other_countries: others.iter().map(|other| other.devices).sum(),
            without_country,
        }
    }
}

/// Counts an app's devices by transport and by country, in slices between which the index serves others. The caller
/// bounds how long that may take, and how many apps' devices are counted at the same time.
///
/// # Errors
/// If there is no such app, or the index did not answer.
pub async fn counts(index: &dyn Index, app: impl Into<AppRef<'_>>) -> anyhow::Result<DeviceCounts> {
    let app = find_app(index, app).await?;
    Ok(DeviceCounts::of(tally_devices(index, &app, Attribute::Country).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_countries_are_named_and_all_devices_counted() {
        let mut tally = DeviceTally::default();
        tally.by_transport.extend([(TransportKind::Mqtt, 200), (TransportKind::Fcm, 49)]);
        for number in 1..=21_u64 {
            let country = if number > 19 { 19 } else { number };
            tally.by_value.insert(Some(format!("C{number:02}").into()), country);
        }
        tally.by_value.insert(None, 21);
        let counts = DeviceCounts::of(tally);
        let named: Vec<_> = counts.by_country.iter().map(|of| (&*of.country, of.devices)).collect();
        assert_eq!((counts.devices, named.len()), (249, MAX_COUNTRIES));
        assert_eq!(named[..4], [("C19", 19), ("C20", 19), ("C21", 19), ("C18", 18)]);
        assert_eq!((counts.other_countries, counts.without_country), (1, 21));
        let in_countries: u64 = named.iter().map(|(_, devices)| devices).sum();
        assert_eq!(in_countries + 1 + 21, counts.devices);
    }
}
