//! What is said about the command lines of all programs: the manual, completions, and the page of settings.

pub mod completions;
pub mod man;
pub mod programs;
pub mod reference;
