//! Devices by number: 32-character ids and all six attributes, the same in every run.

use std::{
    fmt::Write as _,
    io::{BufWriter, Write as _},
    path::Path,
};

use push_model::attributes::Attribute;

/// Values of each attribute, and how many there are: as many as an app of that size has.
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

/// Two countries, three languages, two brands: the three criteria of the targeting benchmark.
pub(crate) const WANTED: [(Attribute, &[&str]); 3] = [
    (Attribute::Country, &["CN", "SG"]),
    (Attribute::Language, &["zh", "en-US", "de"]),
    (Attribute::Brand, &["XIAOMI", "HUAWEI"]),
];

/// The same with two models in place of the brands: of models there are more than one byte tells
/// apart.
pub(crate) const WANTED_MODELS: [(Attribute, &[&str]); 3] =
    [WANTED[0], WANTED[1], (Attribute::Model, &["M1", "M299"])];

/// A device of a crowd.
#[derive(Debug, Clone, Copy)]
struct Member {
    number: u64,
    random: u64,
}

impl Member {
    fn new(number: usize) -> Self {
        let number = number as u64;
        Self { number, random: mix(number) }
    }

    /// One of `count`, from bits that no other attribute uses.
    fn pick(self, place: u32, count: u64) -> u64 {
        (((self.random >> (place * 10)) & 0x3ff) * count) >> 10
    }

    fn of<'a>(self, place: u32, values: &[&'a str]) -> &'a str {
        let at = self.pick(place, values.len() as u64);
        values.get(at as usize).copied().unwrap_or_default()
    }

    fn country(self) -> &'static str {
        self.of(0, &COUNTRIES)
    }

    fn language(self) -> &'static str {
        self.of(1, &LANGUAGES)
    }

    fn brand(self) -> &'static str {
        self.of(2, &BRANDS)
    }

    /// The number in the name of its model.
    fn model(self) -> u64 {
        self.pick(3, MODELS)
    }

    fn app_version(self) -> String {
        format!("5.{}", self.pick(5, APP_VERSIONS))
    }

    /// Writes everything but its id as members of a JSON object.
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

    /// Whether [`WANTED`] means it, and whether [`WANTED_MODELS`] does; the rules are written here
    /// a second time.
    fn is_wanted(self) -> [bool; 2] {
        let both = ["CN", "SG"].contains(&self.country())
            && ["zh-CN", "zh-Hans-SG", "en-US", "de-DE"].contains(&self.language());
        let brand = ["XIAOMI", "HUAWEI"].contains(&self.brand());
        [both && brand, both && [1, 299].contains(&self.model())]
    }
}

/// How many of the first `size` devices [`WANTED`] means, and how many [`WANTED_MODELS`].
pub(crate) fn wanted(size: usize) -> [u64; 2] {
    (0..size).map(|number| Member::new(number).is_wanted()).fold([0; 2], |count, is_wanted| {
        [count[0] + u64::from(is_wanted[0]), count[1] + u64::from(is_wanted[1])]
    })
}

/// The id of a device.
pub(crate) fn client_id(number: usize) -> String {
    let Member { number, random } = Member::new(number);
    format!("{random:016x}{number:016x}")
}

/// The body that registers a device as [`write`] does, or with another version of the app.
pub(crate) fn registration(number: usize, app_version: Option<&str>, transport: &str) -> String {
    let member = Member::new(number);
    let usual = member.app_version();
    let mut body = "{".to_owned();
    let _ = member.describe(&mut body, app_version.unwrap_or(&usual), transport);
    body.push('}');
    body
}

/// A place among so many for each number, as good as random.
pub(crate) fn scatter(number: usize, among: usize) -> usize {
    (mix(number as u64) % among as u64) as usize
}

/// Writes the first `size` devices as NDJSON.
pub(crate) fn write(path: &Path, size: usize, transport: &str) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, std::fs::File::create(path)?);
    let mut line = String::new();
    for number in 0..size {
        let member = Member::new(number);
        line.clear();
        let _ = write!(line, r#"{{"client_id":"{:016x}{:016x}","#, member.random, member.number);
        let _ = member.describe(&mut line, &member.app_version(), transport);
        line.push_str("}\n");
        file.write_all(line.as_bytes())?;
    }
    file.flush()
}

/// Spreads neighbours over all bits (the finaliser of SplitMix64).
fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
