//! The devices of a run, and this suite's own model of which devices a targeting means.
//!
//! The crowd uses the discarding transport, so that it can be large. What each listener receives is seen:
//! some are real MQTT clients, the others are phones of providers that the test plays. The expected counts
//! are computed once for each targeting, because computing them for each push would take time and memory in
//! proportion to devices times pushes.

use std::io::{self, Write};

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};

/// Devices whose messages are seen.
pub(crate) const LISTENERS: usize = MQTT_LISTENERS + FCM_LISTENERS + WEBHOOK_LISTENERS;
/// Those that listen over MQTT. They have the first numbers.
pub(crate) const MQTT_LISTENERS: usize = 20;
/// Those of FCM, which come next.
const FCM_LISTENERS: usize = 5;
/// Those of a webhook, which come last.
const WEBHOOK_LISTENERS: usize = 5;
/// One device in this many has the rare version.
const RARE: u32 = 500;

const COUNTRIES: [&str; 5] = ["CN", "SG", "DE", "US", "BR"];
const LANGUAGES: [&str; 5] = ["zh", "zh-CN", "zh-Hans-CN", "en-GB", "de"];
const BRANDS: [&str; 3] = ["Xiao Mi", "huawei", "Samsung"];

/// The attributes of a device.
#[derive(Debug, Clone, Copy)]
struct Traits {
    country: &'static str,
    language: &'static str,
    /// Absent for one device in three.
    brand: Option<&'static str>,
    rare: bool,
}

impl Traits {
    /// The attributes of device `number` of a run.
    fn of(seed: u64, number: usize, rare_one_in: u32) -> Self {
        let random = &mut SmallRng::seed_from_u64(seed ^ (number as u64).rotate_left(32));
        let mut pick = |from: &[&'static str]| from[random.random_range(0..from.len())];
        let (country, language, brand) = (pick(&COUNTRIES), pick(&LANGUAGES), pick(&BRANDS));
        let brand = (!random.random_ratio(1, 3)).then_some(brand);
        Self { country, language, brand, rare: random.random_ratio(1, rare_one_in) }
    }

    fn line(&self, client_id: &str, transport: &str, token: Option<String>) -> Value {
        json!({
            "client_id": client_id, "transport": transport, "country": self.country,
            "language": self.language, "brand": self.brand, "token": token,
            "app_version": if self.rare { "9.9-rare" } else { "1.0" },
        })
    }
}

/// The way to a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    Mqtt,
    Fcm,
    Webhook,
}

impl Link {
    /// The link of a listener.
    pub(crate) fn of(listener: usize) -> Self {
        match listener.checked_sub(MQTT_LISTENERS) {
            None => Self::Mqtt,
            Some(phone) if phone < FCM_LISTENERS => Self::Fcm,
            Some(_) => Self::Webhook,
        }
    }

    /// The name of the transport.
    fn transport(self) -> &'static str {
        match self {
            Self::Mqtt => "mqtt",
            Self::Fcm => "fcm",
            Self::Webhook => "webhook",
        }
    }

    /// The address of a listener at its provider.
    fn token(self, listener: usize) -> Option<String> {
        match self {
            Self::Mqtt => None,
            Self::Fcm => Some(format!("{FCM_TOKEN}{listener}")),
            Self::Webhook => Some(format!("user {listener}")),
        }
    }

    /// The listener that a provider knows by this name.
    pub(crate) fn listener(self, name: &str) -> Option<usize> {
        let prefix = if self == Self::Fcm { FCM_TOKEN } else { LISTENER };
        let listener = name.strip_prefix(prefix)?.parse().ok()?;
        (listener < LISTENERS && Self::of(listener) == self).then_some(listener)
    }
}

/// The beginning of a registration token of FCM.
const FCM_TOKEN: &str = "registration-token-of-listener:";
/// The beginning of a listener's client id.
const LISTENER: &str = "listener-";

/// A targeting as it is posted, and as this suite understands it.
struct Targeting {
    posted: Value,
    means: fn(&Traits) -> bool,
}

/// All targetings: those that match few devices first, then those that match many.
fn targetings() -> Vec<Targeting> {
    let targeting = |posted, means| Targeting { posted, means };
    vec![
        targeting(json!({"app_version": ["9.9-rare"]}), |t| t.rare),
        targeting(json!({"app_version": [" 9.9-rare "], "country": ["cn", "DE"]}), |t| {
            t.rare && ["CN", "DE"].contains(&t.country)
        }),
        targeting(json!({"app_version": ["9.9-rare"], "language": ["ZH"]}), |t| {
            t.rare && t.language.starts_with("zh")
        }),
        targeting(json!({"country": ["SG"], "model": []}), |t| t.country == "SG"),
        targeting(json!({"language": ["zh_cn"], "brand": ["XIAOMI", "HUAWEI"]}), |t| {
            t.language == "zh-CN" && matches!(t.brand, Some("Xiao Mi" | "huawei"))
        }),
        targeting(json!({"country": ["us", "br"], "language": ["en", "de"]}), |t| {
            ["US", "BR"].contains(&t.country) && ["en-GB", "de"].contains(&t.language)
        }),
    ]
}

/// Targetings that match few devices; they come first.
pub(crate) const RARE_TARGETINGS: usize = 3;
/// Number of targetings.
pub(crate) const TARGETINGS: usize = 6;

/// The devices that a push means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Audience {
    Everyone,
    /// By the index of the targeting.
    Targeted(usize),
    Named {
        crowd: Vec<usize>,
        listeners: Vec<usize>,
        unknown: usize,
    },
}

/// A set of listeners, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Listeners(pub(crate) u32);

impl Listeners {
    pub(crate) const ALL: Self = Self((1 << LISTENERS) - 1);

    pub(crate) fn has(self, listener: usize) -> bool {
        self.0 & (1 << listener) != 0
    }

    pub(crate) fn each(self) -> impl Iterator<Item = usize> {
        (0..LISTENERS).filter(move |&listener| self.has(listener))
    }
}

/// The counts that the service should report for an audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) targeted: u64,
    pub(crate) unknown: u64,
    pub(crate) listeners: Listeners,
}

/// All devices of a run.
pub(crate) struct Population {
    seed: u64,
    crowd: usize,
    targeted: Vec<Expected>,
}

impl Population {
    pub(crate) fn new(seed: u64, crowd: usize) -> Self {
        let mut population = Self { seed, crowd, targeted: Vec::new() };
        let targetings = targetings();
        let none = Expected { targeted: 0, unknown: 0, listeners: Listeners::default() };
        let mut targeted = vec![none; targetings.len()];
        for number in 0..crowd + LISTENERS {
            let traits = population.traits(number);
            for (expected, targeting) in targeted.iter_mut().zip(&targetings) {
                if (targeting.means)(&traits) {
                    expected.targeted += 1;
                    if let Some(listener) = number.checked_sub(crowd) {
                        expected.listeners.0 |= 1 << listener;
                    }
                }
            }
        }
        population.targeted = targeted;
        population
    }

    pub(crate) fn devices(&self) -> usize {
        self.crowd + LISTENERS
    }

    /// The listeners are numbered after the crowd, and half of them have the rare version.
    fn traits(&self, number: usize) -> Traits {
        Traits::of(self.seed, number, if number < self.crowd { RARE } else { 2 })
    }

    pub(crate) fn crowd(&self) -> usize {
        self.crowd
    }

    /// The client ids of the listeners over MQTT.
    pub(crate) fn mqtt_ids() -> Vec<String> {
        (0..MQTT_LISTENERS).map(|n| format!("{LISTENER}{n}")).collect()
    }

    /// All devices as lines to import.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for number in 0..self.crowd {
            let line = self.traits(number).line(&format!("crowd-{number}"), "discard", None);
            writeln!(out, "{line}")?;
        }
        for number in 0..LISTENERS {
            let (traits, link) = (self.traits(self.crowd + number), Link::of(number));
            let id = format!("{LISTENER}{number}");
            writeln!(out, "{}", traits.line(&id, link.transport(), link.token(number)))?;
        }
        Ok(())
    }

    pub(crate) fn expected(&self, audience: &Audience) -> Expected {
        match audience {
            Audience::Everyone => Expected {
                targeted: (self.crowd + LISTENERS) as u64,
                unknown: 0,
                listeners: Listeners::ALL,
            },
            Audience::Targeted(place) => self.targeted[*place],
            Audience::Named { crowd, listeners, unknown } => Expected {
                targeted: (crowd.len() + listeners.len() + unknown) as u64,
                unknown: *unknown as u64,
                listeners: Listeners(listeners.iter().map(|listener| 1 << listener).sum()),
            },
        }
    }

    /// The `condition` of a push.
    pub(crate) fn condition(&self, audience: &Audience) -> Value {
        match audience {
            Audience::Everyone => json!({"type": 0}),
            Audience::Targeted(place) => {
                json!({"type": 1, "targeting": targetings()[*place].posted})
            }
            Audience::Named { crowd, listeners, unknown } => {
                let mut ids: Vec<String> = crowd.iter().map(|n| format!("crowd-{n}")).collect();
                ids.extend(listeners.iter().map(|n| format!("{LISTENER}{n}")));
                ids.extend((0..*unknown).map(|n| format!("unknown-{n}")));
                json!({"type": 2, "client_ids": ids})
            }
        }
    }
}
