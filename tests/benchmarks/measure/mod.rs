//! Measuring: processor time and memory of programs, and statistics of repeated measurements.

pub(crate) mod cpu_time;
pub(crate) mod memory;
pub(crate) mod stats;
