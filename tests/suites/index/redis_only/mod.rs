//! Conditions that only the engine in Redis can meet.
//!
//! - `outages`: servers that were killed, are frozen, or lost their scripts
//! - `refusals`: servers that refuse writes for a while
//! - `sent_once`: writes whose connection breaks while their answer is awaited
//! - `resharding`: hash slots of a cluster that move to another node
//! - `dictionaries`: programs that remember values which are freed
//! - `profiles`: what is kept of the profiles of devices, and what a fail-over may take of it
//! - `corruption`: keys whose content no program of ours wrote
//! - `layout`: keys that another version of the program wrote
//! - `full_lists`: lists of an app's messages that lost their oldest members
//! - `large_pages`: ledger pages that an app fills with ids that it made up

mod corruption;
mod dictionaries;
mod full_lists;
mod large_pages;
mod layout;
mod outages;
mod profiles;
mod refusals;
mod resharding;
mod sent_once;
