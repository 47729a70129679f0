//! Temporary.
mod phones;
