//! `pushctl` as an operator uses it: processes, files, exit codes.

mod apps;
mod attributes;
mod audience;
mod audit;
mod dead_letters;
mod devices;
mod files;
#[cfg(target_os = "linux")]
mod full_disk;
mod gone;
mod help;
mod keys;
mod lists;
mod manual;
mod push;
mod redirect;
mod secrets;
mod settings;
mod standalone;
pub(crate) mod support;
mod version;
