//! The results: one line each as soon as it is measured, one table at the end, and the same as
//! JSON.

#![allow(clippy::print_stdout, reason = "the report is the output of the program")]

use std::fmt;

use serde::Serialize;

/// A number with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Figure {
    pub(crate) value: f64,
    /// For example `pushes/s`, `ms`, `MB`.
    pub(crate) unit: &'static str,
}

impl Figure {
    pub(crate) fn new(value: f64, unit: &'static str) -> Self {
        Self { value, unit }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", short(self.value), self.unit)
    }
}

/// The target of a row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    /// The ratio must be this or more.
    RatioAtLeast(f64),
    /// The ratio must be this or less.
    RatioAtMost(f64),
    /// The figure must be this or less.
    AtMost(f64),
    /// No target: the row is for comparison.
    None,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RatioAtLeast(bound) => write!(f, "ratio >= {bound:.2}"),
            Self::RatioAtMost(bound) => write!(f, "ratio <= {bound:.2}"),
            Self::AtMost(bound) => write!(f, "<= {}", short(*bound)),
            Self::None => f.write_str("-"),
        }
    }
}

/// One result.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    /// The subject of the measurement.
    pub(crate) what: String,
    pub(crate) figure: Figure,
    /// The most that the machine can do, or another figure to compare with, measured in the same
    /// run.
    pub(crate) ceiling: Option<Figure>,
    /// Figure over ceiling. With several rounds, the median of their ratios.
    pub(crate) ratio: Option<f64>,
    /// The requirement of the design.
    pub(crate) target: Target,
    /// The method, and the meaning of the ceiling.
    pub(crate) how: String,
}

impl Row {
    /// A figure that is compared with nothing; what it is, and how it is measured, is for the caller to say.
    pub(crate) fn alone(figure: Figure) -> Self {
        let (what, how) = (String::new(), String::new());
        Self { what, figure, ceiling: None, ratio: None, target: Target::None, how }
    }

    /// Returns true if the target is met; `None` without a target.
    fn is_met(&self) -> Option<bool> {
        match self.target {
            Target::RatioAtLeast(bound) => Some(self.ratio.is_some_and(|ratio| ratio >= bound)),
            Target::RatioAtMost(bound) => Some(self.ratio.is_some_and(|ratio| ratio <= bound)),
            Target::AtMost(bound) => Some(self.figure.value <= bound),
            Target::None => None,
        }
    }

    fn cells(&self) -> [String; 6] {
        [
            self.what.clone(),
            self.figure.to_string(),
            self.ceiling.map_or_else(|| "-".to_owned(), |figure| figure.to_string()),
            self.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            self.target.to_string(),
            match self.is_met() {
                Some(true) => "met",
                Some(false) => "MISSED",
                None => "-",
            }
            .to_owned(),
        ]
    }

    /// Prints the row while the other benchmarks still run.
    pub(crate) fn print(&self) {
        let [what, figure, ceiling, ratio, target, met] = self.cells();
        println!("  {what}: {figure}, ceiling {ceiling}, ratio {ratio}, target {target}: {met}");
        println!("      {}", self.how);
    }
}

/// The result of one benchmark.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Its name on the command line.
    pub(crate) benchmark: &'static str,
    /// Its figures; none if it is broken.
    pub(crate) rows: Vec<Row>,
    /// Why it is broken: an error answer, a wrong count.
    pub(crate) broken: Option<String>,
    pub(crate) seconds: f64,
}

/// Prints the table of all results, and which benchmarks are broken.
pub(crate) fn print_table(reports: &[Report]) {
    let head = ["WHAT", "FIGURE", "CEILING", "RATIO", "TARGET", "MET"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head)
        .chain(reports.iter().flat_map(|report| &report.rows).map(Row::cells))
        .collect();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..6).map(|column| width(column).unwrap_or(0)).collect();
    println!();
    for row in &rows {
        let line: Vec<_> =
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        println!("{}", line.join("  ").trim_end());
    }
    for report in reports {
        if let Some(why) = &report.broken {
            println!("{} is BROKEN: {why}", report.benchmark);
        }
    }
}

/// Three significant digits, with the suffix `k` or `M`.
fn short(value: f64) -> String {
    let (value, suffix) = match value.abs() {
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}{suffix}")
}
