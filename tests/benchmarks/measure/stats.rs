//! Medians and quantiles of repeated measurements.

use std::time::Duration;

use crate::report::{Figure, Row};

/// A figure and its ceiling, measured in turn in several rounds.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    pairs: Vec<(f64, f64)>,
}

impl Rounds {
    pub(crate) fn add(&mut self, figure: f64, ceiling: f64) {
        self.pairs.push((figure, ceiling));
    }

    /// Median figure, median ceiling, and the median of the rounds' ratios: a disturbance of the
    /// machine slows both halves of a round, so their ratio is steadier than either.
    pub(crate) fn medians(&self) -> (f64, f64, f64) {
        let of = |value: fn(&(f64, f64)) -> f64| median(self.pairs.iter().map(value).collect());
        (of(|pair| pair.0), of(|pair| pair.1), of(|pair| pair.0 / pair.1))
    }

    /// A row with their medians, in these units; what is measured, and how, is for the caller to say.
    pub(crate) fn row(&self, unit: &'static str, of_ceiling: &'static str) -> Row {
        let (figure, ceiling, ratio) = self.medians();
        let ceiling = Some(Figure::new(ceiling, of_ceiling));
        Row { ceiling, ratio: Some(ratio), ..Row::alone(Figure::new(figure, unit)) }
    }
}

/// The median; NaN of no values.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 if middle > 0 => (values[middle - 1] + values[middle]) / 2.0,
        _ => values.get(middle).copied().unwrap_or(f64::NAN),
    }
}

/// The time below which this share of the times lies, in milliseconds.
pub(crate) fn quantile(times: &mut [Duration], share: f64) -> f64 {
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    let index = (share * last as f64).round() as usize;
    times.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}
