//! The devices that benchmarks register, by number: 32-character ids and all six attributes, the
//! same in every run.

use std::{
    fmt::Write as _,
    io::{BufWriter, Write as _},
    path::Path,
};

use push_model::attributes::Attribute;

/// The values of each attribute, or how many there are: about as many as a large app has.
const COUNTRIES: [&str; 20] = [
    "CN", "SG", "DE", "US", "FR", "GB", "IN", "ID", "BR", "MX", "TR", "VN", "TH", "PL", "ES", "IT",
    "JP", "KR", "RU", "EG",
];
const LANGUAGES: [&str; 10] =
    ["zh-CN", "en-US", "en-GB", "de-DE", "fr-FR", "pt-BR", "es-ES", "tr-TR", "vi-VN", "zh-Hans-SG"];
const BRANDS: [&str; 8] =
    ["XIAOMI", "HUAWEI", "SAMSUNG", "OPPO", "VIVO", "HONOR", "ONEPLUS", "MOTOROLA"];
const MODELS: u64 = 300;
const OS_VERSIONS: u64 = 9;
const APP_VERSIONS: u64 = 40;

/// The three criteria of the targeting benchmark: two countries, three languages, two brands.
pub(crate) const CRITERIA: [(Attribute, &[&str]); 3] = [
    (Attribute::Country, &["CN", "SG"]),
    (Attribute::Language, &["zh", "en-US", "de"]),
    (Attribute::Brand, &["XIAOMI", "HUAWEI"]),
];

/// The same with two models in place of the brands. There are more models than one byte can number.
pub(crate) const MODEL_CRITERIA: [(Attribute, &[&str]); 3] =
    [CRITERIA[0], CRITERIA[1], (Attribute::Model, &["M1", "M299"])];

/// The plans of devices with a profile; the levels are numbers below [`LEVELS`].
const PLANS: [&str; 4] = ["free", "pro", "team", "trial"];
const LEVELS: u64 = 200;

/// The topics of a million devices with a profile, and how many have each.
pub(crate) const TOPICS: [(&str, usize); 3] =
    [("of-one", 1), ("of-a-thousand", 1000), ("of-a-million", PROFILES)];

/// The devices with a profile.
pub(crate) const PROFILES: usize = 1_000_000;

/// A device of the population.
#[derive(Debug, Clone, Copy)]
struct SyntheticDevice {
    number: u64,
    random: u64,
}

impl SyntheticDevice {
    fn new(number: usize) -> Self {
        let number = number as u64;
        Self { number, random: mix(number) }
    }

    /// A number below `count`, from ten bits that no other attribute uses.
    fn pick(self, attribute: u32, count: u64) -> u64 {
        (((self.random >> (attribute * 10)) & 0x3ff) * count) >> 10
    }

    fn pick_value<'a>(self, attribute: u32, values: &[&'a str]) -> &'a str {
        let index = self.pick(attribute, values.len() as u64);
        values.get(index as usize).copied().unwrap_or_default()
    }

    fn country(self) -> &'static str {
        self.pick_value(0, &COUNTRIES)
    }

    fn language(self) -> &'static str {
        self.pick_value(1, &LANGUAGES)
    }

    fn brand(self) -> &'static str {
        self.pick_value(2, &BRANDS)
    }

    /// The number in the name of its model.
    fn model(self) -> u64 {
        self.pick(3, MODELS)
    }

    fn app_version(self) -> String {
        format!("5.{}", self.pick(5, APP_VERSIONS))
    }

    /// Its plan, its level, and whether it is one of the quarter that has `beta`.
    fn profile(self) -> (&'static str, u64, bool) {
        let bits = mix(self.random);
        let plan = PLANS.get((bits & 3) as usize).copied().unwrap_or_default();
        (plan, (((bits >> 10) & 0x3ff) * LEVELS) >> 10, (bits >> 20) & 3 == 0)
    }

    /// Matches it with the filter of the benchmark, written without the code of filters.
    fn passes_filter(self) -> bool {
        let (plan, level, is_beta) = self.profile();
        (["pro", "team"].contains(&plan) || level >= 150)
            && !is_beta
            && (["CN", "SG"].contains(&self.country()) || self.pick(5, APP_VERSIONS) >= 20)
    }

    /// Writes its attributes and transport as members of a JSON object.
    fn describe(self, json: &mut String, app_version: &str, transport: &str) -> std::fmt::Result {
        write!(
            json,
            r#""country":"{}","language":"{}","brand":"{}","model":"M{}","os_version":"{}","app_version":"{app_version}","transport":"{transport}""#,
            self.country(),
            self.language(),
            self.brand(),
            self.model(),
            26 + self.pick(4, OS_VERSIONS),
        )
    }

    /// Matches it with [`CRITERIA`] and with [`MODEL_CRITERIA`]. Written without the targeting code, so
    /// that the counts check it.
    fn matches(self) -> [bool; 2] {
        let both = ["CN", "SG"].contains(&self.country())
            && ["zh-CN", "zh-Hans-SG", "en-US", "de-DE"].contains(&self.language());
        let brand = ["XIAOMI", "HUAWEI"].contains(&self.brand());
        [both && brand, both && [1, 299].contains(&self.model())]
    }
}

/// Returns how many of the first `size` devices match [`CRITERIA`], and how many [`MODEL_CRITERIA`].
pub(crate) fn count_matching(size: usize) -> [u64; 2] {
    (0..size).map(|number| SyntheticDevice::new(number).matches()).fold([0; 2], |count, matches| {
        [count[0] + u64::from(matches[0]), count[1] + u64::from(matches[1])]
    })
}

/// Returns how many devices with a profile pass the filter of the benchmark: plan `pro` or `team`, or a level of 150 or
/// more; no `beta`; and in `CN` or `SG`, or with an app version of 5.20 or later.
pub(crate) fn count_filtered() -> u64 {
    (0..PROFILES).filter(|number| SyntheticDevice::new(*number).passes_filter()).count() as u64
}

/// Writes the devices with a profile as NDJSON.
pub(crate) fn write_profiles(path: &Path) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, std::fs::File::create(path)?);
    let mut line = String::new();
    for number in 0..PROFILES {
        let device = SyntheticDevice::new(number);
        let (plan, level, is_beta) = device.profile();
        let beta = if is_beta { r#","beta":"yes""# } else { "" };
        let topics = TOPICS.iter().filter(|(_, members)| number % (PROFILES / members) == 0);
        let topics: Vec<String> = topics.map(|(topic, _)| format!("\"{topic}\"")).collect();
        line.clear();
        let _ = write!(line, r#"{{"client_id":"{}","#, client_id(number));
        let _ = device.describe(&mut line, &device.app_version(), "discard");
        let _ = writeln!(
            line,
            r#","attributes":{{"plan":"{plan}","level":{level}{beta}}},"topics":[{}]}}"#,
            topics.join(","),
        );
        file.write_all(line.as_bytes())?;
    }
    file.flush()
}

pub(crate) fn client_id(number: usize) -> String {
    let SyntheticDevice { number, random } = SyntheticDevice::new(number);
    format!("{random:016x}{number:016x}")
}

/// The body that registers a device with the attributes that [`write`] gives it, or with another
/// app version.
pub(crate) fn registration(number: usize, app_version: Option<&str>, transport: &str) -> String {
    let device = SyntheticDevice::new(number);
    let default = device.app_version();
    let mut body = "{".to_owned();
    let _ = device.describe(&mut body, app_version.unwrap_or(&default), transport);
    body.push('}');
    body
}

/// A pseudo-random index below `count` for each number.
pub(crate) fn scatter(number: usize, count: usize) -> usize {
    (mix(number as u64) % count as u64) as usize
}

/// Writes the first `size` devices as NDJSON.
pub(crate) fn write(path: &Path, size: usize, transport: &str) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, std::fs::File::create(path)?);
    let mut line = String::new();
    for number in 0..size {
        let device = SyntheticDevice::new(number);
        line.clear();
        let _ = write!(line, r#"{{"client_id":"{:016x}{:016x}","#, device.random, device.number);
        let _ = device.describe(&mut line, &device.app_version(), transport);
        line.push_str("}\n");
        file.write_all(line.as_bytes())?;
    }
    file.flush()
}

/// Maps neighbouring numbers to unrelated ones (the finaliser of SplitMix64).
fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
