//! `condition.sample`: a share of the devices, as a range of percent.

use push_model::{filter::Sample, text::Text};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    json::{Object, illegal, read_object, required},
    whole_number::hundredths,
};
use crate::rejection::Rejection;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SampleFields<'a> {
    #[serde(borrow)]
    from: Option<&'a RawValue>,
    #[serde(borrow)]
    to: Option<&'a RawValue>,
    #[serde(borrow)]
    seed: Option<Text<'a>>,
}

/// Reads a sample; none if it is all devices.
pub(super) fn read_sample(raw: &RawValue) -> Result<Option<Sample>, Rejection> {
    let Object(fields, _) = read_object::<SampleFields<'_>>(raw.get(), "condition.sample")?;
    let (from, to) = (percent(fields.from, "from")?, percent(fields.to, "to")?);
    if from >= to {
        return Err(illegal("condition.sample.from must be less than condition.sample.to"));
    }
    let seed = fields.seed.ok_or_else(|| required("condition.sample.seed"))?;
    let most = Sample::MAX_SEED_LEN;
    if !(1..=most).contains(&seed.len()) || seed.chars().any(char::is_control) {
        return Err(illegal(format!(
            "condition.sample.seed must be 1 to {most} bytes without control characters"
        )));
    }
    let is_whole = (from, to) == (0, Sample::WHOLE);
    Ok((!is_whole).then(|| Sample { from, to, seed: (*seed).into() }))
}

/// Reads a number of percent, and returns it in hundredths of one.
fn percent(raw: Option<&RawValue>, name: &str) -> Result<u16, Rejection> {
    let raw = raw.ok_or_else(|| required(&format!("condition.sample.{name}")))?;
    let hundredths = hundredths(raw.get()).ok().and_then(|number| u16::try_from(number).ok());
    hundredths.filter(|number| *number <= Sample::WHOLE).ok_or_else(|| {
        illegal(format!(
            "condition.sample.{name} must be a number from 0 to 100 with at most two decimals"
        ))
    })
}
